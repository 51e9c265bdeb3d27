"""The base set of denoising methods, each beside Flow-GRPO at equal evaluations of the network. (DDPO, DanceGRPO, GRPO-Guard,
DiffusionNFT, AWM, Diffusion-DPO in groups, GDRO)

**Setting.** gimbal-digits learns to draw fours in paths of ten steps: 4 groups of 16 samples a step, two moves of the optimiser (GDRO
one, its recipe), data one version old, a bfloat16 sampler. Each arm is the recipe of its name with the same rewards: log p(4) of a
linear classifier on one half of scikit-learn's digits is learned from. *ddpo* has a base model of its own, gimbal-digits-ddim, since it
needs a diffusion model; *base* and *base_ddim* are the two models before any training.

**Evaluations.** Of the network, at one state of one sample: a sampled step is one. Of each decision of a path that trains, one pass
forward counts 1, its pass back 2, the proximal policy 1, and where there is a KL the first weights 1. Arms that noise samples again do
so eight times; each copy counts 1 and 2 as before, and 2 for the two passes that their losses compare with.
A step is 3,520 of *flow_grpo* and *grpo_guard*, 2,176 of *dance_grpo*, 2,688 of *ddpo*, and 3,200 of the others. What measuring draws
does not count.

**Figures**, of 200 samples by the ODE, or DDIM without noise, which a user would sample with, at 16,000 evaluations: on the line
between the last step before and the first after. *reward*, the log p(4) above. *true*, which no arm learns from, but by which each
chooses its rate: the share of samples as near to a real four of the other half as 19 of 20 real fours are. *coverage*: the share of
real fours with a sample nearer than their fifth neighbour among real fours.

**Rule.** Each arm at the best of 3e-4, 1e-3 and 3e-3 by the true reward of one run of seed 100, then seeds 0 to 4. An arm is above
another in a figure if the interval of the difference, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above
0, below if it lies below 0, and undecided otherwise. Each arm is compared with *flow_grpo* in reward, true reward and coverage; *ddpo*
with *base_ddim*, and *flow_grpo* with *base*. No figure stands for the others: an arm with more reward and less coverage has traded.

**Limits.** One small model, one class, one budget, about five steps: this asks what is quicker, not what ends higher, and not what is
left after twenty steps, when arms without a hold on the base lose the digits (docs/denoising.md). Settings other than the rate are the
recipes', and not tuned. Evaluations count alike whatever they take; the column of seconds says what they took. Beside *flow_grpo*,
*dance_grpo* differs in noise, window, start, advantage and KL at once, as its recipe does. Two rates, both 3e-4, the lowest tried, are
as good as ties: by *true* *diffusion_dpo* has .524 there and .517 at 1e-3, *diffusion_nft* .338 and .328 (200 samples). At 1e-3 these
tuning runs have coverages of .04 and .23 and rewards of -.005 and -.63, where *flow_grpo* has .20 and from -2.44 to -1.19: what is said
of the coverage of the one and of the reward of the other hangs on the tie. Arms that noise samples again train on samples of the ODE,
by which figures are measured; *flow_grpo* trains on those of an SDE and is held to the base by a KL of .04, which *awm*,
*diffusion_dpo* and *gdro* are not (*diffusion_nft* by a pull of 1e-4).

Written before its runs, after the evaluations of one step of each arm had been counted, and one pilot (seed 100) each of
*diffusion_nft* at 1e-3 and 20,000 evaluations (reward -0.35, true 0.39, coverage 0.22), *base* (-5.79, 0.04, 0.09) and *base_ddim*
(-5.91, 0.05, 0.09). The budget was lowered before any arm had run, for want of processor time.

    python claims/base_set.py --processes 1       # goes on from claims/base_set.json; eight minutes of one idle core
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import evaluations

from gimbal import recipes
from gimbal.learning.updates.forward_process import AbstractForwardProcess
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.records import TrainBatch
from gimbal.rewards.digits import DigitClass, DigitDistance, DigitLikeness
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import AbstractRun, Run, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
BUDGET, WANTED, PATH, NOISED = 16_000, 4, 4, 5
BASES = {"base": "flow_grpo", "base_ddim": "ddpo"}  # arms that do not learn, and whose model they are
SEEDS = (0, 1, 2, 3, 4)
LEARNT = ("flow_grpo", "diffusion_nft", "ddpo", "dance_grpo", "grpo_guard", "awm", "diffusion_dpo", "gdro")
TUNED = campaign.Tuned(LEARNT, (3e-4, 1e-3, 3e-3), SEEDS, "true")
UNTRAINED = campaign.Tuned(tuple(BASES), (0.0,), SEEDS, "true")
BESIDE = {arm: {"flow_grpo": "base", "ddpo": "base_ddim"}.get(arm, "flow_grpo") for arm in LEARNT}

Runs = Sequence[dict[str, Any]]
Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> AbstractRun:
    run = recipes.function(BASES.get(arm, arm))()
    rewards = (
        DigitLikeness(wanted=WANTED, name="true", weight=0.0),
        DigitClass(wanted=WANTED, name="log_p"),
        DigitDistance(wanted=WANTED),
    )
    run = replace(run, rewards=rewards, prompts_per_step=4, steps=1000, seed=seed, threads=1)
    if isinstance(run, Run):
        return replace(run, optimization=replace(run.optimization, learning_rate=rate))
    assert isinstance(run, UpdateRun)
    optimization = replace(run.update.optimization, learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=optimization))


def learned(run: AbstractRun, batch: TrainBatch) -> int:
    """The evaluations that the learner spends on a batch."""
    if isinstance(run, UpdateRun):
        assert isinstance(run.update, AbstractForwardProcess)
        return NOISED * run.update.draws * batch.shape[0]
    assert isinstance(run, Run)
    return (PATH + any(isinstance(part, StepKL) for part in run.regularisers)) * int(batch.mask_NS.sum())


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer = Trainer(run := run_of(*job))
    if arm in BASES:
        trainer.begin()
        after = evaluations.as_users_draw(trainer)
        found = {name: round(after[key], 4) for name, key in evaluations.FIGURES.items()}
    else:
        found, _ = evaluations.at(BUDGET, trainer, lambda batch: learned(run, batch), look=evaluations.as_users_draw)
    trainer.close()
    return {"arm": arm, "rate": rate, "seed": seed, **found}


def arms_of(arm: str) -> campaign.Tuned:
    return UNTRAINED if arm in BASES else TUNED


def above(runs: Runs, arm: str, figure: str) -> tuple[float, float, float] | None:
    """By how much an arm is above what it is compared with, and its interval, once all seeds of both are there."""
    own, theirs = ([run[figure] for run in arms_of(name).fresh(runs, name)] for name in (arm, BESIDE[arm]))
    return campaign.shift(own, theirs) if min(len(own), len(theirs)) == len(SEEDS) else None


def left(runs: Runs) -> Iterator[list[Job]]:
    """Arm after arm, so that what is recorded can be read before the last has run."""
    for arm in (*BASES, *LEARNT):
        yield from replace(arms_of(arm), arms=(arm,)).left(runs)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
