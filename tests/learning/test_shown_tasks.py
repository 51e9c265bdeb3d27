"""Tasks that show a part of a picture: what the network sees of it, in sampling and in training."""

import copy
from dataclasses import replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.environments.shown_pictures import ShownPictures
from gimbal.learning.learner import Learner
from gimbal.learning.updates.cached_steps import CachedSteps
from gimbal.learning.updates.forward_process import DiffusionDPO
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Group, Task
from gimbal.rewards.shown_digits import DigitJudge

TASKS = [ShownPictures(seed=5)[i] for i in range(3)]  # two fills and one extend


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return Denoiser(model="gimbal-digits-shown", batch=8).load(0)


def rows_of(policy, sampling, tasks=TASKS):
    engine = Denoising(slots=4).start(policy)
    engine.load(0, policy.weights())
    for group, task in enumerate(tasks):
        engine.submit(Request(group=group, task=task, sample=0, sampling=sampling, seed=3))
    return [one.rollout for _, one in sorted(drained(engine).items())]


def test_the_network_sees_what_the_task_shows_and_the_trainer_says_what_the_sampler_said(policy):
    rows = rows_of(policy, PathSampling(max_length=4))
    for row, task in zip(rows, TASKS, strict=True):
        assert row.decisions.given_ND.flatten().tolist() == list(task.columns["given"])
    decisions, behavior_NS = Paths.stack([row.decisions for row in rows]), torch.stack([row.behavior_S for row in rows])
    with torch.no_grad():
        assert torch.equal(policy.evaluate(decisions).logprob_NS, behavior_NS)
        others = replace(decisions, given_ND=decisions.given_ND.roll(1, 0))
        assert (policy.evaluate(others).logprob_NS - behavior_NS).abs().max() > 0.1


def test_it_completes_the_picture_it_is_shown(policy):
    tasks = [ShownPictures(kinds=("fill",), seed=6, kept_out=True)[i] for i in range(12)]
    rows = rows_of(policy, PathSampling(max_length=10, sampler="ode"), tasks)
    for row, task in zip(rows, tasks, strict=True):
        seen_D, known_D = torch.tensor(task.columns["given"]).chunk(2)
        apart_D = (row.decisions.sample_ND.flatten() - seen_D)[known_D > 0]
        assert float(apart_D.square().mean().sqrt()) < 0.35


def test_a_task_that_shows_nothing_is_zeros_and_one_of_another_size_is_refused(policy):
    (row,) = rows_of(policy, PathSampling(max_length=2), [Task(id="t", columns={"label": 3})])
    assert not row.decisions.given_ND.any()
    with pytest.raises(ValueError, match=r"shows 3 numbers in its column given, and .* sees 2 channels of 8 x 8"):
        policy.accepts(Task(id="t", columns={"given": (0.0, 1.0, 0.0)}), 4)
    assert Denoiser().load().given(None, (1.0,)) is None, "one without history sees none of it"


UPDATES = {
    "last step": RewardGradient(steps=GradientSteps(count=1), rewards=(DigitJudge(),)),
    "prediction": RewardGradient(steps=GradientSteps(count=1, late=3), coef=1.0, rewards=(DigitJudge(),)),
    "copies": RewardGradient(steps=GradientSteps(count=1, copies=1), rewards=(DigitJudge(),)),
    "kept path": RewardGradient(steps=CachedSteps(count=2), rewards=(DigitJudge(),)),
    "group preferences": DiffusionDPO(draws=2),
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_losses_are_told_what_was_shown(policy, update):
    rows = rows_of(policy, PathSampling(max_length=3, sampler="ode"), [TASKS[0]] * 3)
    rows = [replace(row, sample=sample, score=float(sample)) for sample, row in enumerate(rows)]
    batch = pack([Group.of(0, TASKS[0], rows)])
    shown_ND = batch.decisions.given_ND

    def gradient(seen_ND):
        learner = Learner(copy.deepcopy(policy), update, first=lambda: copy.deepcopy(policy))
        prepared = learner.prepare(batch)
        learner.forward_backward(replace(prepared, decisions=replace(prepared.decisions, given_ND=seen_ND)))
        return torch.cat([x.grad.flatten() for x in learner.policy.parameters() if x.grad is not None])

    own, same, other = gradient(shown_ND), gradient(shown_ND.clone()), gradient(torch.zeros_like(shown_ND))
    assert torch.equal(own, same) and float((own - other).norm()) > 1e-3 * float(own.norm())
