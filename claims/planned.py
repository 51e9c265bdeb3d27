"""What a drafted plan spares: quality by passes of a network, beside plans that begin as noise (Trajectory Diffuser, arXiv:2407.16142).

**Setting.** `gimbal/pendulum/mixed-v0`, the recipe `trajectory_diffuser`, 600 moves, plans of 8 observations. Of trainings with a
chain of 100 steps: *drafted*, drafts with the last 5 steps of the chain, the best of 8 plans (13 passes of a network an action, 8 of
them small); *one plan*, the same without a choice; *draft alone*, without the chain and without a choice (8); *noise*, from noise by
all of the chain, the best of 8 (100). Of another training, with a chain of 13: *short*, from noise by all of it, the best of 8, as
many passes as *drafted*. Figures: the mean return of 10 episodes, and milliseconds of CPU an action of one episode among 10 at a
time.

**Rates.** Each arm at the better of 1e-3 and 3e-3 by the return of one run of seed 100: *drafted* and *draft alone* at 1e-3, the
others at 3e-3, so arms are of two trainings. All at temperature 1.

**Of one training** (from the same record; asked by a fresh user, no part of the rule): at 1e-3 *one plan* is below *draft alone* (-365;
-664 to -161) and *noise* below *drafted* (-612; -702 to -54), at 3e-3 neither is told apart (+153, -58 to 345. -13, -182 to 36);
*drafted* is above *one plan* at both (+842, +362). So whether one refined plan is better than a draft depends on the rate;
choosing helps at both.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their returns, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Refining helps* if *one plan* is above *draft alone*; *choosing helps* if *drafted*
is above *one plan*; *a draft is worth its passes* if *drafted* is above *short*; *it costs quality* if *noise* is above *drafted*.

**Limits.** One small task. Networks see one observation and are plain, so passes count otherwise than with a transformer and a U-Net.

Written before its runs, after a pilot of seed 100 at 1e-3, 1,500 moves: *drafted* -130, with 20 steps -125, *draft alone* -515,
*noise* -132.

    python claims/planned.py       # goes on from claims/planned.json; about three minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal import recipes
from gimbal.policies.drafted_plan import DraftedPlan
from gimbal.runtime.local import Trainer
from gimbal.runtime.playing import recorded
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS: dict[str, dict[str, Any]] = {  # the chain of the training, and how plans are made
    "drafted": {"chain": 100, "refine": 5},
    "one plan": {"chain": 100, "refine": 5, "candidates": 1},
    "draft alone": {"chain": 100, "refine": 0, "candidates": 1},
    # As keywords: the string "draft" would be taken for the recipe of that name by the table of claims.
    "noise": dict(chain=100, refine=100, draft=False),  # noqa: C408
    "short": dict(chain=13, refine=13, draft=False),  # noqa: C408
}
TUNED = campaign.Tuned(tuple(ARMS), (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
STEPS = 24  # of 25 moves
COMPARED = {
    "refining helps": ("one plan", "draft alone"),
    "choosing helps": ("drafted", "one plan"),
    "a draft is worth its passes": ("drafted", "short"),
    "it costs quality": ("noise", "drafted"),
}

Job = tuple[int, float, int]  # chain, learning rate, seed


def run_of(chain: int, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("trajectory_diffuser", {"tasks": "gimbal/pendulum/mixed-v0", "policy.chain": str(chain)})
    assert isinstance(run, UpdateRun)
    rates = replace(run.update.optimization, learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=rates), steps=STEPS, seed=seed, threads=1)


def policy_of(run: UpdateRun, arm: str, model: str) -> DraftedPlan:
    assert isinstance(run.policy, DraftedPlan)
    return replace(run.policy, model=model, **ARMS[arm])


def measure(job: Job) -> dict[str, Any]:
    chain, rate, seed = job
    start, run, arms = time.process_time(), run_of(*job), {}
    trainer = Trainer(run)
    trainer.begin()
    for _ in range(run.steps):
        trainer.advance()
    with tempfile.TemporaryDirectory() as home:
        trainer.learner.save(Path(home))
        trainer.close()
        for arm in (arm for arm, made in ARMS.items() if made["chain"] == chain):
            spec, before = policy_of(run, arm, home), time.process_time()
            played = recorded(replace(run, policy=spec), spec.load(0), episodes=10, seed=seed, temperature=1.0)
            spent = 1000 * (time.process_time() - before) / played.steps
            arms[arm] = {"return": round(float(np.mean(played.returns())), 1), "ms": round(spent, 3)}
    return {"chain": chain, "rate": rate, "seed": seed, "arms": arms, "cpu": round(time.process_time() - start, 1)}


def by_arm(runs: campaign.Runs) -> campaign.Runs:
    """A record of each arm, of what was measured of one training."""
    return [
        {"arm": arm, "rate": run["rate"], "seed": run["seed"], **found}
        for run in runs
        for arm, found in run["arms"].items()
    ]


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    """Trainings that are not recorded: those of the tuning, then those that an arm takes at its rate."""
    chains = sorted({made["chain"] for made in ARMS.values()})

    def undone(jobs: list[Job]) -> list[Job]:
        done = {(run["chain"], run["rate"], run["seed"]) for run in runs}
        return [job for job in dict.fromkeys(jobs) if job not in done]

    yield undone([(chain, rate, TUNED.seed) for chain in chains for rate in TUNED.rates])
    rates = {arm: TUNED.best(by_arm(runs), arm) for arm in ARMS}
    yield undone(
        [
            (made["chain"], rate, seed)
            for seed in TUNED.seeds
            for arm, made in ARMS.items()
            if (rate := rates[arm]) is not None
        ]
    )


def told(run: Any) -> str:
    figures = ", ".join(f"{arm} {found['return']}" for arm, found in run["arms"].items())
    return f"chain {run['chain']} rate {run['rate']} seed {run['seed']}: {figures}, {run['cpu']} CPU-s"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
