"""Does credit by the turn beat credit by the token for an agent in a terminal (the critic of VL-DAC, arXiv:2508.04280)?

**Setting.** The recipe ``terminal`` (see ``terminal.py``), from the same model: 10 steps of 8 tasks x 8 rollouts, on the same tasks
in all arms. A turn is what the policy writes between two answers of the terminal, all turns of an episode in one row; the only
reward is 1 or 0 at the end of the last turn.

**Arms.** *token*: PPO as in the recipe ``ppo`` (value head on the policy's hidden states at a rate of 1e-3, 2 epochs of 2
minibatches, mean over tokens): ``GAE(gamma=1, lam=0.95)``, ``Whitened()``, ``ValueLoss(clip=0.2)``. *turn*: the same but for what
knows turns: ``TurnGAE(gamma=1, lam=0.95)``, ``Whitened(level="turn")``, ``TurnValueLoss(clip=0.2)``. *token1*: *token* with a
lambda of 1. A token of this model is a character, so 0.95 a token reaches some twenty characters back and seldom past one turn,
while 0.95 a turn reaches all; *token1* tells that apart from the unit of credit. *group*: the recipe ``terminal`` itself,
group-normalised outcomes without a critic, one update a batch. lambda is the published one of *token* and *turn*; VL-DAC's gamma is
0.9, and 1 here, so that discounting is not varied along with the unit of credit. Its guarded clip, its balanced loss, its KL
penalty and the critic's warm-up are left out for the same reason.

**Rates.** Each arm at the best of 2e-5, 6e-5 and 2e-4 by its mean pass rate in one run of seed 100.

**Rule.** Seeds 0 to 4. *turn* learns faster than *token* if the mean pass rate over the 10 training steps is higher, by the paired
difference over seeds: the 95 % interval of its mean (t, 4 degrees of freedom) is above 0; it ends better by the same of the success
on 128 held-out tasks, 2 samples each. An interval that has 0 in it decides nothing; one below 0 says that it hurts. *turn* is
compared with *token1* alike, and each with *group*. If *turn* is above *token* and not above *token1*, the reach of lambda is
enough to explain it. The mechanism acts if the spread of advantages within turns (standard deviation within a turn over that of all
decisions, after whitening, a mean over the steps) is 0 for *turn* and above 0.1 for *token* in each seed.

**Limits.** One small model; two to four short turns an episode; ten steps, so a critic of forty updates; one run a rate. *group*
takes one update a batch and the other two four, so it is a base and no ablation.

Written before its runs, after a pilot of four steps of each arm (seed 102, 1e-4; success after 0.42 *group*, 0.02 *token*, 0.80
*turn*), which showed what a step costs and that rates below 1e-4 are to be tried. Twenty steps were planned; after two tuning runs
(seed 100, 2e-5; success after 0.43 *group*, 0.73 *token*) they were halved for their cost. Neither is in a table. *token1* was
added when the tuning runs of *token* and *turn* were there (means of 0.31 and 0.61 at their best) and the
first of seed 0 was under way, before any run of its own.

    python claims/turns.py       # goes on from claims/turns.json; about ten minutes of one idle core
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import campaign
import terminal
import torch
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.recipes import function
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("group", "token", "token1", "turn"), (2e-5, 6e-5, 2e-4), (0, 1, 2, 3, 4), "mean")
LAMBDAS: Mapping[str, float] = {"token": 0.95, "token1": 1.0}
STEPS, SAMPLES, WITHIN = 10, 2, "advantage/within_turn"
LAST = 5  # steps whose mean is what a run ends with

Job = tuple[str, float, int]  # arm, learning rate, seed


@dataclass(frozen=True, kw_only=True)
class WithinTurn(AbstractAdvantage):
    """Changes nothing, and reports how much of the spread of advantages lies within turns: 0 where a turn has one advantage."""

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    def __call__(self, batch: TrainBatch) -> Tensor:
        return batch.column("advantage_NS", self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        advantage_NS = batch.column("advantage_NS", self).double()
        apart_NS = advantage_NS - ops.pooled(advantage_NS, batch.mask_NS, "turn", batch.turns_NS)
        whole = float(ops.masked_std(advantage_NS, batch.mask_NS))
        within = float(ops.masked_mean(apart_NS.square(), batch.mask_NS)) ** 0.5
        return {WITHIN: within / whole if whole > 0 else 0.0}


def run_of(arm: str, rate: float, seed: int) -> Run:
    run, ppo = function("terminal")(), function("ppo")()
    assert run.held_out is not None
    run = replace(run, seed=seed, threads=1, steps=STEPS, held_out=replace(run.held_out, samples=SAMPLES))
    if arm == "group":
        optimization = replace(run.optimization, learning_rate=rate)
        return replace(run, optimization=optimization, shaping=(WithinTurn(),))
    optimization = replace(ppo.optimization, learning_rate=rate, microbatch_tokens=run.optimization.microbatch_tokens)
    run = replace(
        run, optimization=optimization, objective=ppo.objective, aggregation=ppo.aggregation, critic=ppo.critic
    )
    if arm in LAMBDAS:
        parts = {"advantage": GAE(gamma=1.0, lam=LAMBDAS[arm]), "regularisers": (ValueLoss(clip=0.2),)}
        return replace(run, **parts, shaping=(Whitened(), WithinTurn()))
    parts = {"advantage": TurnGAE(gamma=1.0, lam=0.95), "regularisers": (TurnValueLoss(clip=0.2),)}
    return replace(run, **parts, shaping=(Whitened(level="turn"), WithinTurn()))


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    torch.set_flush_denormal(True)
    run = run_of(arm, rate, seed)
    trainer = Trainer(run)
    trainer.begin()
    steps, told = terminal.trained(run, trainer)
    critic = [step["value/explained"] for step in steps[-LAST:] if "value/explained" in step]
    found = {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        **told,
        "mean": terminal.mean(steps, "pass_rate"),
        "within": terminal.mean(steps, WITHIN),
        "explained": round(sum(critic) / len(critic), 3) if critic else None,
        "calls": terminal.mean(steps[-LAST:], "tool/calls", 2),
    }
    trainer.close()
    return found


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
