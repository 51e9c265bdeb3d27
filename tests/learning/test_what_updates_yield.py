"""An update of a user's own that would train nothing, or cannot be moved by, is refused in one sentence at its first step."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from test_updates import Line, batch_of

from gimbal.advantages import ReturnToGo
from gimbal.config.own import OwnError
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import AdamW
from gimbal.learning.updates.base import AbstractUpdate, Loss, ModelSpec
from gimbal.learning.updates.policy_gradient import PolicyGradient
from gimbal.objectives.base import AbstractObjective
from gimbal.recipes.core.grpo import grpo
from gimbal.records import Terms

MOVED = {"policy": ModelSpec(optimizer=AdamW(learning_rate=0.1))}


@dataclass(frozen=True, kw_only=True)
class Mine(AbstractUpdate):
    found: Callable[..., Any]
    specs: Any = None

    def models(self):
        return MOVED if self.specs is None else self.specs

    def losses(self, models, batch):
        return self.found(models, batch)


def constant(models, batch):
    yield Loss(of=("policy",), value=models.evaluated(batch)["logprob_NS"].sum())


def nothing(models, batch):
    yield Loss(of=("policy",), value=0 * models.evaluated(batch)["logprob_NS"].sum())


def live(models, batch):
    return models.policy.evaluate(batch.decisions, temperature=models.forward.temperature).logprob_NS


def loss_of(of, value):
    """As without the types that tests check."""
    loss = Loss(of=("policy",), value=torch.zeros(()))
    object.__setattr__(loss, "of", of)
    object.__setattr__(loss, "value", value)
    return loss


def yields(*made):
    def losses(models, batch):
        yield from (make(models, batch) for make in made)

    return losses


CASES = {
    "no gradient": (constant, "the loss of policy that Mine yields has no gradient"),
    "another's": (
        yields(lambda m, b: Loss(of=("other",), value=live(m, b).sum())),
        "the loss of other that Mine yields has no",
    ),
    "unknown": (
        yields(lambda m, b: Loss(of=("critic",), value=live(m, b).sum())),
        "'critic', which is none of its models",
    ),
    "unmoved": (yields(lambda m, b: Loss(of=("fixed",), value=live(m, b).sum())), "'fixed', which has no optimizer"),
    "not one number": (
        yields(lambda m, b: loss_of(("policy",), live(m, b))),
        r"yielded a Tensor of shape \[6, 2\]",
    ),
    "a tensor": (yields(lambda m, b: live(m, b).sum()), "it must yield Loss"),
    "a string": (yields(lambda m, b: loss_of("policy", live(m, b).sum())), r"of=\('policy',\)"),
    "returned": (lambda m, b: Loss(of=("policy",), value=live(m, b).sum()), "it must return an iterator of losses"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_would_not_learn_is_refused(case):
    found, sentence = CASES[case]
    specs = {
        **MOVED,
        "other": ModelSpec(load=lambda seed: Line(), optimizer=AdamW(learning_rate=0.1)),
        "fixed": ModelSpec(load=lambda seed: Line()),
    }
    learner = Learner(Line(), Mine(found=found, specs=specs))
    with pytest.raises(OwnError, match=sentence):
        learner.step(learner.prepare(batch_of()))
    assert learner.version == 0


def test_a_policy_that_nothing_moves_is_refused_before_the_first_step():
    for specs in ({"policy": ModelSpec()}, {"critic": ModelSpec(load=lambda seed: Line())}):
        with pytest.raises(OwnError, match=r"return \{'policy': ModelSpec\(optimizer=AdamW"):
            Learner(Line(), Mine(found=constant, specs=specs))


def test_a_loss_of_nothing_may_be_without_gradient():
    learner = Learner(Line(), Mine(found=nothing))
    assert learner.step(learner.prepare(batch_of()))["grad_norm"] == 0


@dataclass(frozen=True, kw_only=True)
class Still(AbstractObjective):
    """It reads what was recorded in place of what it is given."""

    def __call__(self, logprob_NS, batch):
        return Terms(loss_NS=batch.column("advantage_NS", self) * batch.mask_NS)


def test_an_objective_without_gradient_is_refused():
    learner = Learner(Line(), PolicyGradient(objective=Still(), advantage=ReturnToGo()))
    with pytest.raises(OwnError, match=r"Still .*must return a loss of the logprob_NS that it is given"):
        learner.step(learner.prepare(batch_of()))


def test_the_update_of_the_page_is_reinforce_with_a_baseline():
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    own = ModuleType("upd")
    sys.modules["upd"] = own  # where its dataclass looks itself up
    exec(re.search(r"```python\n(from [^`]*class BatchReinforce.*?)```", page, re.DOTALL)[1], vars(own))
    del sys.modules["upd"]
    run, batch, policy = own.mine(), batch_of(), Line()
    assert run.tasks == grpo().tasks and run.learns == own.BatchReinforce()
    learner = Learner(policy, run.update)
    learner.forward_backward(learner.prepare(batch))
    above_N = batch.return_N - batch.return_N.mean()
    loss = -(above_N[:, None] * policy.evaluate(batch.decisions).logprob_NS).sum() / batch.mask_NS.sum()
    torch.testing.assert_close(policy.w.grad, torch.autograd.grad(loss, policy.w)[0])
    before = policy.w.detach().clone()
    assert learner.step(learner.prepare(batch))["return"] == pytest.approx(float(batch.return_N.mean()))
    assert not torch.equal(policy.w, before)
