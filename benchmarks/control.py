"""Classic control beside Stable-Baselines3: the same environments, seeds and environment steps, one thread each. Of gimbal, returns and
seconds are those of claims/control.json, so that the two did not take turns, and ran while others used the machine: for speed see the
second table. Of SB3 there are as many seeds as the table says.

The return is that of the last policy at its mode, the mean of 20 episodes that begin from the same states on both sides and that none
has trained on; seconds are of the processor, for training alone. SB3 has the settings of rl-zoo for PPO and DQN. For SAC and TD3, whose
settings there are for longer runs, it has the network, minibatch and rates of the recipes; TD3 has the zoo's noise of .1, and SAC on
MountainCarContinuous an Ornstein-Uhlenbeck noise of .5. A case goes on from what is recorded, seed after seed.

    python benchmarks/control.py --seeds 5 --out benchmarks/control.json   # about 25 CPU minutes

``--turns`` measures speed alone, finer: both sides take turns of some steps of the environment in one process, and what a turn took is
divided by the other's of the same turn. There SB3 has the recipe's networks, minibatches, environments and number of updates for a
step (DQN its five-step targets too). Two sides more show how near the least possible this is: the updates alone, written by hand with
the same networks and minibatches (``by_hand.py``), and gymnasium's own steps of the environment, with actions drawn beforehand. What is
above their sum is the policy's choice of actions, a buffer, weights that are delivered and checked, and figures that are told.

    python benchmarks/control.py sac td3 dqn ppo_pendulum --turns 10 --out benchmarks/control.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import by_hand
import torch

from gimbal import recipes
from gimbal.environments.gym import Gymnasium
from gimbal.runtime.local import Trainer

CLAIM = Path(__file__).parents[1] / "claims" / "control.json"
EPISODES = 20


@dataclass(frozen=True)
class Case:
    """A bar of claims/control.py, and what SB3 does beside it."""

    bar: str
    environment: str
    steps: int
    algorithm: str
    options: Mapping[str, Any]
    noise: float = 0.0  # of actions from -1 to 1
    lasting: bool = False  # whether the noise is that of an Ornstein-Uhlenbeck process
    beside: int = 1  # environments
    schedule: tuple[str, ...] = ()  # options that fall to 0


SMALL = {"learning_rate": 1e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}}
CASES = {
    "sac": Case("sac", "Pendulum-v1", 5_000, "SAC", SMALL),
    "td3": Case("td3", "Pendulum-v1", 10_000, "TD3", SMALL, noise=0.1),
    "ppo_cartpole": Case(
        "ppo cartpole",
        "CartPole-v1",
        200_000,  # gimbal's episodes come to 189,316 to 200,948
        "PPO",
        {
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
        },
        beside=8,
        schedule=("learning_rate", "clip_range"),
    ),
    "dqn": Case(
        "dqn",
        "CartPole-v1",
        50_000,
        "DQN",
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
    "ppo_pendulum": Case(
        "ppo pendulum",
        "Pendulum-v1",
        100_000,
        "PPO",
        {
            "n_steps": 1024,
            "gae_lambda": 0.95,
            "gamma": 0.9,
            "n_epochs": 10,
            "ent_coef": 0.0,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "use_sde": True,
            "sde_sample_freq": 4,
        },
        beside=4,
    ),
    "mountain": Case("mountain", "MountainCarContinuous-v0", 20_000, "SAC", SMALL, noise=0.5, lasting=True),
}


@dataclass(frozen=True)
class Pace:
    """A recipe, and SB3 with its networks, minibatches, environments and number of updates."""

    recipe: str
    algorithm: str
    options: Mapping[str, Any]
    beside: int = 1  # environments
    turn: int = 200  # steps of the environment
    updates: float = 1.0  # for a step of the environment


PACES = {
    "sac": Pace("sac", "SAC", SMALL),
    "td3": Pace("td3", "TD3", SMALL),
    "dqn": Pace(
        "dqn",
        "DQN",
        {
            "learning_rate": 5e-4,
            "batch_size": 128,
            "buffer_size": 50_000,
            "learning_starts": 1_000,
            "target_update_interval": 1,
            "tau": 0.02,
            "train_freq": 16,
            "gradient_steps": 32,
            "n_steps": 5,
            "policy_kwargs": {"net_arch": [128, 128]},
        },
        beside=8,
        turn=1_024,
        updates=0.25,
    ),
    "ppo_pendulum": Pace(
        "pendulum",
        "PPO",
        {"learning_rate": 2e-3, "n_steps": 100, "batch_size": 400, "n_epochs": 10, "gamma": 0.9},
        beside=20,
        turn=4_000,
        updates=0.025,
    ),
}


def theirs(case: Case, seed: int) -> dict[str, float]:
    import numpy as np
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise

    torch.set_num_threads(1)
    options = deepcopy(dict(case.options))  # SB3 writes into what it is given
    options |= {name: falling(options[name]) for name in case.schedule}
    if case.noise:
        kind = OrnsteinUhlenbeckActionNoise if case.lasting else NormalActionNoise
        options["action_noise"] = kind(np.zeros(1), np.full(1, case.noise))
    environments = make_vec_env(case.environment, n_envs=case.beside, seed=seed)
    model = vars(stable_baselines3)[case.algorithm]("MlpPolicy", environments, seed=seed, device="cpu", **options)
    start = time.process_time()
    model.learn(case.steps)
    seconds = time.process_time() - start
    tasks = Gymnasium(environment=case.environment, seed=2)  # what gimbal is evaluated on
    earned = [played(model, case.environment, tasks[index].seed) for index in range(EPISODES)]
    return {"return": round(statistics.fmean(earned), 2), "seconds": round(seconds, 1), "steps": model.num_timesteps}


def played(model: Any, environment: str, seed: int) -> float:
    """The return of the episode that begins from this seed, at the policy's mode."""
    import gymnasium

    env = gymnasium.make(environment)
    (seen, _), earned, ended = env.reset(seed=seed), 0.0, False
    while not ended:
        seen, reward, terminated, truncated, _ = env.step(model.predict(seen, deterministic=True)[0])
        earned, ended = earned + float(reward), terminated or truncated
    return earned


def falling(first: float) -> Callable[[float], float]:
    return lambda left: left * first


def paced(name: str, turns: int) -> dict[str, Any]:
    """CPU milliseconds for a step of the environment and its updates, of each side in turns."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    pace = PACES[name]
    run = recipes.load(pace.recipe, {"seed": 0, "steps": 100_000})
    trainer = Trainer(replace(run, threads=1))
    trainer.begin()
    environments = make_vec_env(run.tasks.source, n_envs=pace.beside, seed=0)
    model = vars(stable_baselines3)[pace.algorithm](
        "MlpPolicy", environments, seed=0, device="cpu", **deepcopy(dict(pace.options))
    )
    update, steps_alone = by_hand.UPDATES[name](), stepping(run.tasks.source)

    def gimbal() -> float:
        began = trainer.pipeline.generated["decisions"]
        while trainer.pipeline.generated["decisions"] < began + pace.turn:
            trainer.advance()
        return trainer.pipeline.generated["decisions"] - began

    def sb3() -> float:
        began = model.num_timesteps
        model.learn(pace.turn, reset_num_timesteps=False)
        return model.num_timesteps - began

    def floor() -> float:
        for _ in range(round(pace.turn * pace.updates)):
            update()
        return pace.turn

    def environment() -> float:
        return steps_alone(pace.turn)

    sides = {"gimbal": gimbal, "sb3": sb3, "floor": floor, "environment": environment}
    took: dict[str, list[float]] = {}
    for turn in range(turns + 2):
        for who, take in sides.items():
            start = time.process_time()
            steps = take()
            if turn > 1:  # what comes before is caches, and a buffer that is still empty
                took.setdefault(who, []).append(1e3 * (time.process_time() - start) / steps)
    trainer.close()
    ratios = {who: [b / a for a, b in zip(took["gimbal"], own, strict=True)] for who, own in took.items()}
    return {
        "case": f"{name}, speed",
        "turns": turns,
        **{f"{who}_ms": round(statistics.median(values), 3) for who, values in took.items()},
        **{f"{who}_by_gimbal": round(statistics.median(ratios[who]), 2) for who in took if who != "gimbal"},
        "sb3_by_gimbal_least": round(min(ratios["sb3"]), 2),
        "sb3_by_gimbal_most": round(max(ratios["sb3"]), 2),
        "load": round(os.getloadavg()[1], 1),
    }


def stepping(name: str) -> Callable[[int], int]:
    """Steps of this environment as gymnasium makes it, and nothing else."""
    import gymnasium

    env = gymnasium.make(name)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(1_000)]
    env.reset(seed=0)

    def take(steps: int) -> int:
        for index in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[index % len(actions)])
            if terminated or truncated:
                env.reset()
        return steps

    return take


def beside(name: str, runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """A row of the record: what both sides reached. ``sb3`` are SB3's runs so far, and gimbal's those of the claim."""
    case = CASES[name]
    ours = [run for run in json.loads(CLAIM.read_text()) if run["bar"] == case.bar]
    row: dict[str, Any] = {"case": case.bar, "steps": case.steps}
    for who, own in (("gimbal", ours), ("sb3", runs)):
        row[f"{who}_runs"] = len(own)
        row[f"{who}_median"] = round(statistics.median(run["return"] for run in own), 1)
        row[f"{who}_worst"] = round(min(run["return"] for run in own), 1)
        row[f"{who}_seconds"] = round(statistics.median(run["seconds"] for run in own), 1)
    return row | {"sb3": list(runs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=0, help="measure speed alone, in so many turns")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if wrong := [name for name in given.cases if name not in CASES]:
        parser.error(f"there is no case {wrong[0]}: {', '.join(CASES)}")
    if given.turns and (wrong := [name for name in given.cases if name not in PACES]):
        parser.error(f"there is no speed of {wrong[0]}: {', '.join(PACES)}")
    record = json.loads(given.out.read_text()) if given.out and given.out.is_file() else {"returns": [], "speed": []}

    def keep(kind: str, row: dict[str, Any]) -> None:
        record[kind] = [old for old in record[kind] if old["case"] != row["case"]] + [row]
        print(json.dumps(row), flush=True)
        if given.out:
            given.out.write_text(json.dumps(record, indent=1) + "\n")

    if given.turns:
        for name in given.cases or PACES:
            keep("speed", paced(name, given.turns))
        return
    for name in given.cases or CASES:
        runs = [run for row in record["returns"] if row["case"] == CASES[name].bar for run in row["sb3"]]
        for seed in range(len(runs), given.seeds):
            runs.append({"seed": seed, **theirs(CASES[name], seed), "load": round(os.getloadavg()[1], 1)})
            keep("returns", beside(name, runs))


if __name__ == "__main__":
    main()
