"""Does a small drafter fall behind a policy that learns, and does training it on its tested drafts keep it up? (Draft-OPD)

**Setting.** gimbal-tiny is trained by ``grpo`` to write sevens: the reward is the share of sevens among the characters of an answer of
at most 12 tokens, so what it writes changes. 12 steps of 4 tasks x 8 rollouts, rate 1e-3, data of the newest version. The drafter has
the first two of its five layers. Before the run it learns for 12 arrivals from 64 answers each of the policy as it is shipped, with
rate 1e-3 (``warmup``). Both arms begin with this drafter. Arms: *stays*, ``learning_rate`` 0; *follows*, ``learning_rate`` 1e-3, in
minibatches of 8 blocks. The costs are set so that both draft in every pass unless hardly anything is accepted: no cost of a
further token, no margin, at most four tokens. Drafts change no token, so both arms see one policy.

**Figures.** Acceptance: the share of tested drafted tokens that were accepted, of the last 50 passes or so, at the end of each of steps
1 to 3 (*first*, mean) and of the last three (*last*); passes of the policy per token of a row, the same.

**Rule.** Seeds 0 to 4; by seed, what acceptance changes by from first to last. *A drafter that stays falls behind* if the 95 %
interval of its mean change (t, 4 degrees of freedom) is below 0. *Training keeps it up* if the interval of the paired difference of
last, *follows* less *stays*, is above 0. *It falls behind too* if the interval of the change of *follows* is below 0. (Until a reader
objected the same test was called *it does not fall behind*, and passed where it fails now: an interval with 0 in it shows neither.)
That the policy moved is shown by its reward.

**Limits.** One target and one drafter. A policy that learns to be right is not this target: in eight steps of chain_sum (a pilot, seed
100, rate 3e-4) the acceptance of *stays* rose from .67 to .72, for the policy became surer of what it says.

Written before its first run, after pilots of seed 100.

    python claims/drafter.py       # goes on from claims/drafter.json; about two minutes of one idle core
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.drafting.draft_model import Distilled, DraftModel
from gimbal.engines.native import Native
from gimbal.policies.token import Sampling
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
RATES: Mapping[str, float] = {"stays": 0.0, "follows": 1e-3}
SEEDS, STEPS, EDGE, WARM, ANSWERS = range(5), 12, 3, 12, 8
FREE = {"slope": 0.0, "margin": -1.0, "longest": 4}

Job = tuple[str, int]  # arm, seed


@dataclass(frozen=True, kw_only=True)
class Sevens(AbstractReward):
    """The share of sevens among the characters of an answer."""

    name: str = "sevens"

    def __call__(self, group: Group) -> list[float | None]:
        return [row.text.count("7") / max(1, len(row.text)) for row in group.rollouts]


@cache
def warmed() -> str:
    """A directory of the drafter that both arms begin with."""
    run = recipes.load("grpo")
    policy = run.policy.load(0)
    spec = DraftModel(layers=2, learning_rate=1e-3, warmup=WARM)
    engine = Native(slots=64, precision="int8", drafter=spec).start(policy)
    for version in range(WARM):
        engine.load(version, policy.state_dict())
        for group in range(version * ANSWERS, (version + 1) * ANSWERS):
            for sample in range(8):
                asked = Request(group=group, task=run.tasks[group], sample=sample, sampling=run.sampling, seed=1000)
                engine.submit(asked)
        drained(engine)
    engine.load(WARM, policy.state_dict())
    drafts = engine.decoder.drafts
    assert isinstance(drafts, Distilled)
    directory = tempfile.mkdtemp()
    drafts.module.save_pretrained(directory)
    policy.tokenizer.save_pretrained(directory)
    return directory


def run_of(arm: str, seed: int) -> Run:
    run = recipes.load("grpo")
    drafter = DraftModel(model=warmed(), learning_rate=RATES[arm], warmup=0, minibatch=8, **FREE)
    return replace(
        run,
        engine=Native(slots=32, precision="int8", drafter=drafter),
        optimization=replace(run.optimization, learning_rate=1e-3),
        rewards=(Sevens(),),
        sampling=Sampling(max_length=12),
        prompts_per_step=4,
        max_staleness=0,
        held_out=None,
        steps=STEPS,
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    arm, seed = job
    trainer = Trainer(run_of(arm, seed))
    trainer.begin()
    lines = [trainer.advance()[0] for _ in range(STEPS)]
    trainer.close()

    def ends(name: str) -> dict[str, float]:
        figures = [line.get(name, line.get(f"drafts/{name}", 0.0)) for line in lines]
        return {"first": round(fmean(figures[:EDGE]), 4), "last": round(fmean(figures[-EDGE:]), 4)}

    names = ("acceptance", "passes_per_token", "drafting_frac", "drafts/loss", "reward/sevens/mean")
    return {"arm": arm, "seed": seed, **{name: ends(name) for name in names}}


def left(runs: campaign.Runs) -> Iterator[Iterable[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for seed in SEEDS for arm in RATES if (arm, seed) not in done]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, str)
