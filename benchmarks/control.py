"""Off-policy control beside Stable-Baselines3: the same environment, seeds and environment steps, one thread each.

Both sides take turns, a seed each, so that whatever else the machine does falls on both; seconds are of the processor, evaluation left
out. The return is that of the last policy at its mode, the mean of 20 episodes that neither side has trained on. Figures are median and
worst of the seeds. SB3 has the network, minibatch and rates of the recipes; for ``dqn`` it has those of rl-zoo.

    python benchmarks/control.py sac td3 dqn --seeds 5 --out benchmarks/control.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gimbal import recipes
from gimbal.config import Text
from gimbal.runtime.local import Trainer

EPISODES = 20


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
    "mountain": Case("sac", 20_000, "SAC", SMALL, {"environment": "MountainCarContinuous-v0", "steps": "2000"}),
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
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = json.loads(given.out.read_text()) if given.out and given.out.is_file() else []
    for name in given.cases:
        before = [row for row in before if row["case"] != name] + [measured(name, given.seeds)]
        print(json.dumps(before[-1], indent=1))
        if given.out:
            given.out.write_text(json.dumps(before, indent=1) + "\n")


if __name__ == "__main__":
    main()
