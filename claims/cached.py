"""The way back through a path that is kept: does it learn as much as one that is walked again? (FlowBP, arXiv:2606.11075)

**Setting.** That of `reward_gradients.py`: gimbal-digits learns to draw fours in six steps of the ODE, by the gradient of log p(4) of a
linear classifier, with a pull to the base of 10; 64 samples a step, and 20,000 evaluations of the network, where one with a backward
pass counts as three. *drtune*, three spaced steps of the path walked again, up to one of the last four, without Jacobians. *sparse*,
three steps of the recorded path, drawn with weights k + 1, scaled by 0.5, without Jacobians. *bridge*, three such steps, one Jacobian
times 0.5 between them, not scaled.

**Figures.** *true*, *reward* and *coverage* as there, of 200 samples of the ODE after the run. *steps*: learner steps that the
evaluations sufficed for. *cosine*: of the reward's gradient by the arm with that through the whole path, at the base model, 64 paths of
the run's seed, the mean of 16 draws of steps.

**Rule.** Each arm at the best of 3e-5, 1e-4, 3e-4 and 1e-3 by *true* of one run of seed 100, then seeds 0 to 4. An arm is better
than *drtune* if the interval of the difference in *true*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies
above 0, worse if it lies below. Coverage and *cosine* are compared in the same way.

**Limits.** Six steps, of which three carry gradient: the published arms take four or five of 25, where a path walked again costs more.
A network of 297 k parameters. On-policy, so that the recorded path is the present weights'. FlowBP's leaps are not here. A run ends
after the step that crosses the budget, and nothing is interpolated: 16 steps of *drtune* and 17 of the others, up to one of about 1,300
evaluations too many.

Written before its runs, without a pilot but for *cosine* of seed 100: 0.91, 0.89 and 0.88.

    python claims/cached.py --processes 1     # goes on from claims/cached.json; seven minutes of one idle core
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import reward_gradients
import torch
from torch import Tensor

from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.learner import Learner
from gimbal.learning.updates.cached_steps import CachedSteps
from gimbal.learning.updates.gradient_steps import AbstractGradientSteps, GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import Paths
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
DRTUNE, SPARSE, BRIDGE = "drtune", "sparse", "bridge"
STEPS = {
    DRTUNE: GradientSteps(count=3, late=4, spaced=True, detached=True),
    SPARSE: CachedSteps(count=3, late=1.0, scale=0.5),
    BRIDGE: CachedSteps(count=3, late=1.0, scale=0.0, bridge=0.5),
}
LENGTH, ROWS, DRAWS = 6, 64, 16

Job = tuple[str, float, int]  # arm, learning rate, seed

TUNED = campaign.Tuned((DRTUNE, SPARSE, BRIDGE), (3e-5, 1e-4, 3e-4, 1e-3), (0, 1, 2, 3, 4), "true")
COMPARED = {
    "Sparse is better than DRTune": (SPARSE, DRTUNE),
    "Bridge is better than DRTune": (BRIDGE, DRTUNE),
    "Sparse covers more": (SPARSE, DRTUNE, "coverage"),
    "Bridge covers more": (BRIDGE, DRTUNE, "coverage"),
    "Sparse is nearer to the whole gradient": (SPARSE, DRTUNE, "cosine"),
    "Bridge is nearer to the whole gradient": (BRIDGE, DRTUNE, "cosine"),
}


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = reward_gradients.arm_of("drtune", seed, rate)
    assert isinstance(run, UpdateRun)
    return replace(run, update=replace(run.update, steps=STEPS[arm]))


def cosine(run: UpdateRun) -> float:
    """Of the arm's gradient of the reward with the whole one, at the base model."""
    policy = Denoiser().load()
    engine, tasks = Denoising(slots=ROWS).start(policy), Conditions(seed=1)
    engine.load(0, policy.weights())
    for sample in range(ROWS):
        engine.submit(Request(group=sample, task=tasks[sample], sample=0, sampling=run.sampling, seed=run.seed))
    drawn = [finished.rollout for _, finished in sorted(drained(engine).items())]
    paths = [rollout.decisions for rollout in drawn if isinstance(rollout.decisions, Paths)]
    batch = TrainBatch(mask_NS=torch.stack([rollout.mask_S for rollout in drawn]), decisions=Paths.stack(paths))

    def gradient(steps: AbstractGradientSteps, draw: int) -> Tensor:
        update = RewardGradient(steps=steps, rewards=run.rewards)
        learner = Learner(policy, update, seed=run.seed)
        learner.models.version = draw
        learner.forward_backward(learner.prepare(batch))
        found = torch.cat([weight.grad.flatten() for weight in policy.parameters() if weight.grad is not None])
        policy.zero_grad()
        return found

    assert isinstance(run.update, RewardGradient)
    whole = gradient(GradientSteps(count=LENGTH), 0)
    near = [torch.cosine_similarity(gradient(run.update.steps, draw), whole, dim=0) for draw in range(DRAWS)]
    return round(statistics.fmean(map(float, near)), 4)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    run = run_of(*job)
    near, trainer = cosine(run), Trainer(run)
    trainer.begin()
    counted, start, steps = reward_gradients.Counted(), time.process_time(), 0
    while counted.spent < reward_gradients.BUDGET:
        trainer.advance()
        steps += 1
    counted.stop()
    cpu = round(time.process_time() - start, 1)
    after = trainer.evaluate().metrics()
    trainer.close()
    ended = {name: round(after[key], 4) for name, key in reward_gradients.FIGURES.items()}
    return {"arm": arm, "rate": rate, "seed": seed, **ended, "cosine": near, "steps": steps, "cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
