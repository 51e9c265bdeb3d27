"""Off-policy control beside Stable-Baselines3: the same environment, seeds and environment steps, one thread each.

Both sides take turns, a seed each, so that whatever else the machine does falls on both; seconds are of the processor, evaluation left
out. The return is that of the last policy at its mode, the mean of 20 episodes that neither side has trained on. Figures are median and
worst of the seeds. SB3 has the network, minibatch and rates of the recipes; for ``dqn`` it has those of rl-zoo.

    python benchmarks/control.py sac td3 dqn --seeds 5 --out benchmarks/control.json

``--turns`` measures speed alone, finer: both sides, and an update of SAC written by hand with the same networks and minibatch, take
turns of 200 steps of the environment in one process, and what a turn took is divided by the other's of the same turn.

    python benchmarks/control.py sac --turns 10 --out benchmarks/control.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gimbal import recipes
from gimbal.config import Text
from gimbal.runtime.local import Trainer

EPISODES = 20
TURN = 200  # steps of the environment


@dataclass(frozen=True)
class Case:
    """A recipe with its changes, the same of SB3, and how many steps of the environment both take."""

    recipe: str
    steps: int
    algorithm: str
    options: Mapping[str, Any]
    changes: Mapping[str, str]


SMALL = {"learning_rate": 1e-3, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}}
CASES = {
    "sac": Case("sac", 5_000, "SAC", SMALL, {}),
    "td3": Case("td3", 10_000, "TD3", SMALL, {}),
    "mountain": Case(
        "sac",
        20_000,
        "SAC",
        SMALL,
        {
            "environment": "MountainCarContinuous-v0",
            "steps": "2000",
            "engine.correlation": "0.9",
            "update.temperature_learning_rate": "3e-4",
        },
    ),
    "dqn": Case(
        "dqn",
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
        {},
    ),
}


def ours(case: Case, seed: int) -> dict[str, float]:
    run = recipes.load(case.recipe, {"seed": seed, **{key: Text(value) for key, value in case.changes.items()}})
    trainer = Trainer(replace(run, threads=1))
    try:
        trainer.begin()
        start, metrics = time.process_time(), dict[str, float]()
        while metrics.get("env_steps", 0) < case.steps and trainer.learner.version < run.steps:
            metrics, *_ = trainer.advance()
        seconds = time.process_time() - start
        return {"return": trainer.evaluate().greedy_score, "seconds": seconds, "steps": metrics["env_steps"]}
    finally:
        trainer.close()


def theirs(case: Case, seed: int) -> dict[str, float]:
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    environment = recipes.load(case.recipe, {key: Text(value) for key, value in case.changes.items()}).tasks.source
    algorithm = vars(stable_baselines3)[case.algorithm]
    model = algorithm("MlpPolicy", environment, seed=seed, device="cpu", **case.options)
    start = time.process_time()
    model.learn(case.steps)
    seconds = time.process_time() - start
    fresh = Monitor(gymnasium.make(environment))
    fresh.reset(seed=10_000 + seed)
    mean, _ = evaluate_policy(model, fresh, EPISODES)
    return {"return": float(mean), "seconds": seconds, "steps": float(case.steps)}


def paced(name: str, turns: int) -> dict[str, Any]:
    """CPU milliseconds for a step of the environment and its update, of each side in turns."""
    import stable_baselines3

    case = CASES[name]
    run = recipes.load(case.recipe, {"seed": 0, **{key: Text(value) for key, value in case.changes.items()}})
    trainer = Trainer(replace(run, threads=1))
    trainer.begin()
    model = vars(stable_baselines3)[case.algorithm]("MlpPolicy", run.tasks.source, seed=0, device="cpu", **case.options)
    update = by_hand()

    def gimbal() -> float:
        until = trainer.pipeline.generated["decisions"] + TURN
        while trainer.pipeline.generated["decisions"] < until:
            trainer.advance()
        return TURN

    def sb3() -> float:
        model.learn(TURN, reset_num_timesteps=False)
        return TURN

    def floor() -> float:
        for _ in range(TURN):
            update()
        return TURN

    sides, took = {"gimbal": gimbal, "sb3": sb3, "floor": floor}, dict[str, list[float]]()
    for turn in range(turns + 2):
        for who, take in sides.items():
            start = time.process_time()
            steps = take()
            if turn > 1:  # what comes before is caches, and a buffer that is still empty
                took.setdefault(who, []).append(1e3 * (time.process_time() - start) / steps)
    trainer.close()
    ratios = {who: [b / a for a, b in zip(took["gimbal"], took[who], strict=True)] for who in ("sb3", "floor")}
    return {
        "case": f"{name}, speed",
        "turns": turns,
        **{f"{who}_ms": round(statistics.median(values), 2) for who, values in took.items()},
        **{f"{who}_by_gimbal": round(statistics.median(values), 2) for who, values in ratios.items()},
        "sb3_by_gimbal_least": round(min(ratios["sb3"]), 2),
        "sb3_by_gimbal_most": round(max(ratios["sb3"]), 2),
        "load": round(os.getloadavg()[1], 1),
    }


def by_hand() -> Callable[[], None]:
    """An update of SAC as short as it can be written: 64 x 64, minibatches of 128, on data that do not matter."""
    actor = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    shapes = ((2, 4, 64), (2, 64, 64), (2, 64, 1), (2, 1, 64), (2, 1, 64), (2, 1, 1))
    critic = [(0.1 * torch.randn(shape)).requires_grad_() for shape in shapes]
    target = [weight.detach().clone() for weight in critic]
    alpha, weights = torch.zeros((), requires_grad=True), [*actor.parameters()]
    adam = [torch.optim.Adam(own, 1e-3, fused=True) for own in (critic, weights, [alpha])]
    seen, did, after, reward = torch.randn(128, 3), torch.rand(128, 1), torch.randn(128, 3), torch.randn(128)

    def worth(q: Sequence[torch.Tensor], observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        x = torch.cat([observation, action], -1).expand(2, -1, -1)
        x = torch.baddbmm(q[4], torch.baddbmm(q[3], x, q[0]).relu(), q[1]).relu()
        return torch.baddbmm(q[5], x, q[2])[..., 0]

    def acts(observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = actor(observation).chunk(2, -1)
        noise = torch.randn(128, 1)
        u = mean + log_std.clamp(-5, 2).exp() * noise
        return u.tanh(), (2 * torch.logaddexp(u, -u) - log_std - 0.5 * noise * noise).sum(-1)

    def move(optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()
        optimizer.zero_grad()

    def update() -> None:
        with torch.no_grad():
            action, logprob = acts(after)
            y = reward + 0.99 * (worth(target, after, action).min(0).values - alpha.exp() * logprob)
        (worth(critic, seen, did) - y).square().mean().backward(inputs=critic)
        move(adam[0])
        with torch.no_grad():
            torch._foreach_lerp_(target, critic, 0.005)
        action, logprob = acts(seen)
        loss = (alpha.detach().exp() * logprob - worth(critic, seen, action).min(0).values).mean()
        (loss - alpha * (logprob.detach() - 1).mean()).backward(inputs=[*weights, alpha])
        move(adam[1])
        move(adam[2])

    return update


def side(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    returns = [run["return"] for run in runs]
    return {
        "returns": [round(value, 1) for value in returns],
        "median": round(statistics.median(returns), 1),
        "worst": round(min(returns), 1),
        "cpu_seconds": round(statistics.median(run["seconds"] for run in runs), 1),
        "steps_per_s": round(statistics.median(run["steps"] / run["seconds"] for run in runs)),
    }


def measured(name: str, seeds: int) -> dict[str, Any]:
    case, kept = CASES[name], dict[str, list[dict[str, float]]]()
    sides: Sequence[tuple[str, Callable[[Case, int], dict[str, float]]]] = (("gimbal", ours), ("sb3", theirs))
    for seed in range(seeds):
        for who, take in sides:
            kept.setdefault(who, []).append(take(case, seed))
            print(name, who, seed, kept[who][-1], flush=True)
    found = {"case": name, "steps": case.steps, **{who: side(runs) for who, runs in kept.items()}}
    return found | {"times_sb3": round(found["gimbal"]["steps_per_s"] / found["sb3"]["steps_per_s"], 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["sac"], choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=0, help="measure speed alone, in so many turns")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    for name in given.cases:
        if given.turns and name != "sac":
            parser.error("--turns has a floor for sac alone: leave the other cases out")
        found = paced(name, given.turns) if given.turns else measured(name, given.seeds)
        before = [row for row in before if row["case"] != found["case"]] + [found]
        print(json.dumps(before[-1], indent=1))
        if given.out:
            given.out.write_text(json.dumps(before, indent=1) + "\n")


if __name__ == "__main__":
    main()
