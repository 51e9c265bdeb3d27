"""Updates over named models: what a policy provides, whose gradient a loss is, models that follow, states that come back."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from gimbal.advantages import ReturnToGo
from gimbal.composition import AbstractRemembering
from gimbal.learning.learner import Learner, NotFinite
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.base import AbstractUpdate, Loss, Models, ModelSpec
from gimbal.learning.updates.policy_gradient import PolicyGradient
from gimbal.objectives import KLPenalty, Reinforce
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.base import AbstractPolicy, Evaluation
from gimbal.policies.control import Steps
from gimbal.records import Terms, TrainBatch


class Line(AbstractPolicy):
    """a ~ N(w o, 1), which shows its means."""

    provides = frozenset({"mean_NSA"})

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, 1))
        self.asked = []

    def evaluate(self, decisions, *, temperature=1.0, columns=(), checkpointing=False):
        self.asked.append(set(columns))
        mean_NSA = decisions.observation_NSO @ self.w
        logprob_NS = -0.5 * (decisions.action_NSA - mean_NSA).square().sum(-1)
        return Evaluation(logprob_NS=logprob_NS, columns={"mean_NSA": mean_NSA} if columns else {})

    def pieces(self, decisions):
        return []

    def save(self, directory):
        raise NotImplementedError


def batch_of(n=6, s=2):
    g = torch.Generator().manual_seed(0)
    decisions = Steps(
        observation_NSO=torch.randn(n, s, 2, generator=g),
        action_NSA=torch.randn(n, s, 1, generator=g),
        final_NO=torch.randn(n, 2, generator=g),
        length_N=torch.full((n,), s),
        terminated_N=torch.zeros(n, dtype=torch.bool),
    )
    mask_NS = torch.ones(n, s, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, reward_NS=torch.randn(n, s, generator=g), decisions=decisions)


@dataclass(frozen=True, kw_only=True)
class Small(AbstractObjective):
    """The square of the policy's means."""

    needs: ClassVar[frozenset[str]] = frozenset({"mean_NSA"})

    def __call__(self, logprob_NS, batch):
        return Terms(loss_NS=batch.column("mean_NSA", self).square().sum(-1))


@dataclass(frozen=True, kw_only=True)
class Odd(AbstractObjective):
    needs: ClassVar[frozenset[str]] = frozenset({"curl_NS"})

    def __call__(self, logprob_NS, batch):
        return Terms(loss_NS=logprob_NS)


def test_a_column_that_only_this_policy_knows_reaches_a_loss_with_its_gradient():
    learner = Learner(Line(), PolicyGradient(objective=Small(), advantage=ReturnToGo()))
    batch = batch_of()
    learner.forward_backward(learner.prepare(batch))
    w = torch.ones(2, 1, requires_grad=True)
    (batch.decisions.observation_NSO @ w).square().sum(-1).mean().backward()
    torch.testing.assert_close(learner.policy.w.grad, w.grad)


@dataclass(frozen=True, kw_only=True)
class Away(AbstractObjective):
    """The square of how far the policy's means are from the reference's."""

    needs: ClassVar[frozenset[str]] = frozenset({"mean_NSA", "reference/mean_NSA"})
    other: str = "reference/mean_NSA"

    def __call__(self, logprob_NS, batch):
        return Terms(loss_NS=(batch.column("mean_NSA", self) - batch.column(self.other, self)).square().sum(-1))


def test_any_column_of_the_references_evaluation_reaches_a_loss_as_a_constant():
    reference = Line()
    with torch.no_grad():
        reference.w.fill_(0.5)
    learner = Learner(Line(), PolicyGradient(objective=Away(), advantage=ReturnToGo()), reference=reference)
    batch = batch_of()
    learner.forward_backward(learner.prepare(batch))
    w, seen = torch.ones(2, 1, requires_grad=True), batch.decisions.observation_NSO
    (seen @ w - seen @ torch.full((2, 1), 0.5)).square().sum(-1).mean().backward()
    torch.testing.assert_close(learner.policy.w.grad, w.grad)
    assert reference.w.grad is None and reference.asked == [{"mean_NSA"}]


def test_a_reference_of_which_only_log_probabilities_are_read_is_asked_for_nothing_else():
    method = PolicyGradient(objective=Small(), advantage=ReturnToGo(), regularisers=(KLPenalty(),))
    learner = Learner(Line(), method, reference=(reference := Line()))
    batch = learner.prepare(batch_of())
    assert reference.asked == [set()] and not {name for name in batch.facts if name.startswith("reference/")}
    assert "reference" not in Learner(Line(), replace(method, regularisers=())).models


@dataclass(frozen=True, kw_only=True)
class Curled(AbstractObjective):
    needs: ClassVar[frozenset[str]] = frozenset({"reference/curl_NS"})

    def __call__(self, logprob_NS, batch):
        return Terms(loss_NS=logprob_NS)


def test_a_column_that_nobody_provides_is_refused_by_name():
    with pytest.raises(ValueError, match="Curled reads reference/curl_NS, which Line does not provide"):
        Learner(Line(), PolicyGradient(objective=Curled(), advantage=ReturnToGo()), reference=Line())
    with pytest.raises(ValueError, match=r"Odd reads curl_NS, which Line does not provide \(it has mean_NSA\)"):
        Learner(Line(), PolicyGradient(objective=Reinforce(), regularisers=(Odd(),), advantage=ReturnToGo()))


@dataclass(frozen=True, kw_only=True)
class Lagging(AbstractObjective, AbstractRemembering):
    """The square of how far the policy's means are from what they lately were."""

    needs: ClassVar[frozenset[str]] = frozenset({"mean_NSA"})

    past: float = 0.5

    def init(self):
        return {"past": self.past}

    def update(self, state, metrics):
        return {"past": (state["past"] + metrics["mean"]) / 2}

    def __call__(self, logprob_NS, batch):
        mean_NS = batch.column("mean_NSA", self)[..., 0]
        return Terms(loss_NS=(mean_NS - self.past).square(), metrics={"mean": mean_NS})


def test_what_a_part_remembers_moves_once_a_step_and_comes_back_with_the_run():
    update = PolicyGradient(objective=Small(), regularisers=(Lagging(),), advantage=ReturnToGo())

    def step(learner):
        metrics = learner.step(learner.prepare(batch_of()))
        return metrics | learner.control(metrics)

    learner = Learner(Line(), update)
    assert learner.update == update
    first = step(learner)
    past = learner.update.regularisers[0].past
    assert past == (0.5 + first["mean"]) / 2 == first["memory/regularisers.0.past"]
    other = Learner(copy.deepcopy(learner.policy), update)
    state = copy.deepcopy(learner.save_state())
    other.load_state(state)
    assert other.update == learner.update
    assert step(other)["memory/regularisers.0.past"] == step(learner)["memory/regularisers.0.past"] != past
    assert torch.equal(other.policy.w, learner.policy.w)
    del state["parts"]["regularisers.0"]
    with pytest.raises(ValueError, match=r"lacks the state of regularisers.0"):
        Learner(Line(), update).load_state(state)


@dataclass(frozen=True, kw_only=True)
class Pull(AbstractUpdate):
    """The critic q towards 1, then the policy towards q; a copy of q stays behind. ``sick`` damages the policy's loss."""

    sick: bool = False

    def models(self) -> dict[str, ModelSpec]:
        o = replace(self.optimization, max_grad_norm=1e9)
        return {
            "policy": ModelSpec(optimizer=o.adamw(0.1)),
            "critic": ModelSpec(load=self._critic, optimizer=o.adamw(0.5)),
            "target": ModelSpec(follows="critic", rate=0.25),
        }

    @staticmethod
    def _critic(seed):
        torch.manual_seed(seed)
        return nn.Linear(2, 1)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        seen, weight_NS = batch.decisions.observation_NSO, batch.facts["weight"]
        apart_NS = (models["critic"](seen)[..., 0] - 1).square()
        yield Loss(
            of=("critic",),
            value=(weight_NS * apart_NS).sum(),
            metrics={"apart": float((weight_NS * apart_NS).sum().detach())},
        )
        q_NS, own_NS = models["critic"](seen)[..., 0], (seen @ models.policy.w)[..., 0]
        loss = (weight_NS * (own_NS - q_NS).square()).sum() * (float("nan") if self.sick else 1.0)
        yield Loss(of=("policy",), value=loss)


def pulled(tokens=10**6, steps=3, **changes):
    update = Pull(optimization=Optimization(minibatches=2, microbatch_tokens=tokens), **changes)
    return Learner(Line(), update, seed=3), steps


def test_losses_move_their_own_models_in_turn_and_targets_follow():
    """By hand: the policy's gradient is of the critic that has moved already, and the critic gets none of it."""
    learner, steps = pulled()
    policy, critic = Line(), copy.deepcopy(learner.models["critic"])
    target = copy.deepcopy(critic)
    own = {"betas": (0.9, 0.95), "weight_decay": 0.0, "eps": 1e-8}
    of_policy = torch.optim.AdamW(policy.parameters(), lr=0.1, **own)
    of_critic = torch.optim.AdamW(critic.parameters(), lr=0.5, **own)
    batch = batch_of()
    for _ in range(steps):
        for rows in learner._minibatch_rows(batch, 0, 2):
            seen = batch.select(rows).decisions.observation_NSO
            of_critic.zero_grad()
            (critic(seen) - 1).square().mean().backward()
            of_critic.step()
            with torch.no_grad():
                for late, now in zip(target.parameters(), critic.parameters(), strict=True):
                    late += 0.25 * (now - late)
            of_policy.zero_grad()
            (seen @ policy.w - critic(seen).detach()).square().mean().backward()
            of_policy.step()
        metrics = learner.step(learner.prepare(batch))
    for ours, theirs in (
        (learner.policy, policy),
        (learner.models["critic"], critic),
        (learner.models["target"], target),
    ):
        torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), atol=1e-6, rtol=0)
    assert learner.version == steps and {"apart", "grad_norm", "grad_norm/critic", "lr"} <= metrics.keys()


def test_micro_batches_move_as_the_whole_does():
    ends = []
    for tokens in (10**6, 1):
        learner, steps = pulled(tokens)
        for _ in range(steps):
            metrics = learner.step(learner.prepare(batch_of()))
        ends.append(
            (metrics["apart"], *(p for m in ("policy", "critic", "target") for p in learner.models[m].parameters()))
        )
    torch.testing.assert_close(*ends, atol=1e-5, rtol=0)


def test_a_saved_update_goes_on_to_the_same_bits():
    learner, steps = pulled()
    for _ in range(steps):
        learner.step(learner.prepare(batch_of()))
    state, weights = copy.deepcopy(learner.save_state()), copy.deepcopy(learner.policy.state_dict())
    resumed, _ = pulled()
    resumed.policy.load_state_dict(weights)
    resumed.load_state(state)
    for one in (learner, resumed):
        one.step(one.prepare(batch_of()))
    for name in ("policy", "critic", "target"):
        pairs = zip(learner.models[name].parameters(), resumed.models[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    assert resumed.version == steps + 1


def test_what_is_not_finite_moves_nothing_more():
    learner, _ = pulled(sick=True)
    with pytest.raises(NotFinite, match="was not applied"):
        learner.step(learner.prepare(batch_of()))
    assert torch.equal(learner.policy.w, torch.ones(2, 1)) and learner.policy.w.grad is None


def test_a_model_too_many_and_one_too_few_are_named():
    with pytest.raises(ValueError, match="but also received 'teacher'"):
        Learner(Line(), Pull(), teacher=nn.Linear(2, 1))
    method = PolicyGradient(objective=Reinforce(), advantage=ReturnToGo(), regularisers=(KLPenalty(),))
    with pytest.raises(ValueError, match="model 'reference' that it cannot make itself"):
        Learner(Line(), method)


def test_what_cannot_be_done_in_shards_is_refused():
    from gimbal.learning.distributed import _refused  # half a second that other tests need not wait

    with pytest.raises(ValueError, match="learns by Pull: start it without torchrun"):
        _refused(Learner(Line(), Pull()))
    method = PolicyGradient(objective=Reinforce(), advantage=ReturnToGo())
    assert _refused(learner := Learner(Line(), method)) is learner
