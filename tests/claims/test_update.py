"""What the arms of the claim minimise, once more in plain torch: no part of objectives, advantages, anchors, packing or layouts."""

import sys
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import dose

from gimbal.dataflow.packing import pack
from gimbal.learning.learner import Learner
from gimbal.runtime.local import Trainer

pytestmark = pytest.mark.slow
RATE = 2e-3  # at which two updates of age give the clip and both caps something to do


@dataclass(frozen=True)
class Row:
    """A rollout as the sampler drew it, its advantage, and the log-probabilities of its tokens before the step."""

    prompt: list[int]
    answer: list[int]
    behavior_S: torch.Tensor
    advantage: float
    proximal_S: torch.Tensor


def logprob_S(model, prompt, answer):
    """One text alone, through the bare model."""
    logits_SV = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return logits_SV.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)]


def row_of(rollout, scores, model) -> Row:
    ids, begin = rollout.decisions.ids_NL[0].tolist(), int(rollout.decisions.prompt_N[0])
    with torch.no_grad():
        proximal_S = logprob_S(model, ids[:begin], ids[begin:])
    advantage = (rollout.score - scores.mean()) / (scores.std(correction=1) + 1e-6)
    return Row(ids[:begin], ids[begin:], rollout.behavior_S, float(advantage), proximal_S)


def loss_of(arm: str, rows: list[Row], model) -> torch.Tensor:
    """Minus the mean over tokens of: weight (w, 0 above 5, or w cut at 2) times what the ratio earns, PPO's smaller one if it clips."""
    earned = torch.tensor(0.0)
    for row in rows:
        anchor_S = row.behavior_S if arm == "sampler" else row.proximal_S
        ratio_S = (logprob_S(model, row.prompt, row.answer) - anchor_S).exp()
        gain_S = ratio_S * row.advantage
        if arm not in ("plain", "unclipped", "weighted"):
            gain_S = torch.minimum(gain_S, ratio_S.clamp(0.8, 1.2) * row.advantage)
        weight_S = (row.proximal_S - row.behavior_S).exp()
        if arm in ("decoupled", "weighted"):
            gain_S = gain_S * weight_S * (weight_S <= 5)
        if arm == "truncated":
            gain_S = gain_S * weight_S.clamp(max=2)
        earned = earned + gain_S.sum()
    return -earned / sum(len(row.answer) for row in rows)


@pytest.fixture(scope="module")
def stale():
    """A policy two versions on from what drew these groups."""
    run = dose.run_of("age", dose.AGE["plain"], 2, RATE, 0)
    trainer = Trainer(replace(run, prompts_per_step=4, num_generations=4))
    try:
        for _ in range(2):
            trainer.advance()
        groups, _ = trainer.pipeline.next_batch(2)
        return trainer.learner.policy, groups
    finally:
        trainer.close()


@pytest.mark.parametrize("arm", dose.AGE)
def test_loss_and_gradient_are_those_of_plain_torch(stale, arm):
    policy, groups = deepcopy(stale[0]), stale[1]
    rows = {
        (group.index, rollout.sample): row_of(rollout, group.score_G.double(), policy.model)
        for group in groups
        for rollout in group.rollouts
    }
    weight_K = torch.cat([(row.proximal_S - row.behavior_S).exp() for row in rows.values()])
    assert (weight_K > dose.CAPS.get(arm, 2.0)).any(), "the caps act"
    run = dose.run_of("age", dose.AGE[arm], 2, RATE, 0)
    learner, clipped = Learner(policy, run, temperature=run.sampling.temperature), []
    batch = learner.prepare(pack(groups))
    for part in torch.arange(len(rows)).chunk(run.optimization.minibatches):
        minibatch = batch.select(part)
        metrics = learner.forward_backward(minibatch)
        here = [rows[key] for key in zip(minibatch.group_N.tolist(), minibatch.sample_N.tolist(), strict=True)]
        loss = loss_of(arm, here, policy.model)
        expected = torch.autograd.grad(loss, list(policy.model.parameters()))
        largest = max(float(gradient.abs().max()) for gradient in expected)
        # Shared beginnings are summed in another order, and weights without a cap multiply what rounding leaves of log-probabilities.
        assert metrics["loss"] == pytest.approx(loss.item(), rel=5e-5, abs=1e-5)
        for gradient, parameter in zip(expected, policy.model.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=1e-4 * max(1.0, largest))
        clipped.append(metrics["clip_ratio/low"] + metrics["clip_ratio/high"])
        learner.optim_step(metrics)
    assert (max(clipped) > 0) == (arm not in ("plain", "unclipped", "weighted"))
