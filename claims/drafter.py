"""Does a small drafter fall behind a policy that learns, and does training it on its tested drafts keep it up? (Draft-OPD)

**Setting.** gimbal-tiny learns chain_sum by the recipe ``grpo``: 24 steps of 8 tasks x 8 rollouts, rate 3e-4, data of the newest
version. Its first two layers of five are the drafter. Before the run it learns for 24 arrivals from 128 answers each of the policy as
it is shipped, with rate 1e-3 (``warmup``). Both arms begin with this drafter. Arms: *stays*, ``learning_rate`` 0; *follows*, the same
with ``learning_rate`` 3e-4 and blocks of ``longest`` 4, as in ``DraftModel``. The costs are set so that both draft in every pass while
they are right at all: no cost of a further token, no margin. Drafts change no token, so both arms see one policy.

**Figures.** Acceptance: the share of tested drafted tokens that were accepted, over steps 1 to 4 (*first*) and over the last four
(*last*); tokens a row gets in a pass of the policy, the same.

**Rule.** Seeds 0 to 4; by seed, what acceptance changes by from first to last. *A drafter that stays falls behind* if the 95 %
interval of its mean change (t, 4 degrees of freedom) is below 0. *Training keeps it up* if the interval of the paired difference of
last, *follows* less *stays*, is above 0. *No loss* if the interval of the change of *follows* is not below 0. That the policy moved is
shown by the pass rate, that the drafter learns by its loss.

Written before its first run, after a pilot of seed 100.

    python claims/drafter.py       # goes on from claims/drafter.json; about five minutes of one idle core
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
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
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
RATES: Mapping[str, float] = {"stays": 0.0, "follows": 3e-4}
SEEDS, STEPS, EDGE, WARM, ANSWERS = range(5), 24, 4, 24, 16
FREE = {"slope": 0.0, "margin": -1.0, "longest": 4}

Job = tuple[str, int]  # arm, seed


@cache
def warmed() -> str:
    """A directory of the drafter that both arms begin with."""
    run = recipes.load("grpo")
    policy = run.policy.load(0)
    spec = DraftModel(layers=2, learning_rate=1e-3, warmup=WARM)
    engine = Native(slots=128, precision="int8", drafter=spec).start(policy)
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
    drafter = DraftModel(model=warmed(), learning_rate=RATES[arm], warmup=0, **FREE)
    return replace(
        run,
        engine=Native(slots=64, precision="int8", drafter=drafter),
        optimization=replace(run.optimization, learning_rate=3e-4),
        prompts_per_step=8,
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
        figures = [line.get(f"drafts/{name}", line.get(name, 0.0)) for line in lines]
        return {"first": round(fmean(figures[:EDGE]), 4), "last": round(fmean(figures[-EDGE:]), 4)}

    names = ("acceptance", "passes_per_token", "loss", "pass_rate", "drafting_frac")
    return {"arm": arm, "seed": seed, **{name: ends(name) for name in names}}


def left(runs: campaign.Runs) -> Iterator[Iterable[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for seed in SEEDS for arm in RATES if (arm, seed) not in done]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, str)
