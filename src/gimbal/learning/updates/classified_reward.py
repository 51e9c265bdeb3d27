"""A reward that is learned from examples of success: a classifier pays for what looks like one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gimbal.composition import Composition, Verdict
from gimbal.dataflow.replay.recorded import unlike
from gimbal.dataflow.replay.transitions import FRESH, MOVE, fresh
from gimbal.environments.minari import Minari
from gimbal.learning.updates.around import AbstractAround
from gimbal.learning.updates.base import Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.model_learning import single_steps
from gimbal.learning.updates.off_policy import counted_of, means, steps_of, summed
from gimbal.ops import stable_hash
from gimbal.policies.control import AbstractControlPolicy, filled, relu_mlp
from gimbal.records import TrainBatch

CLASSIFIER = "classifier"
SUCCESS, FAILURE = "example/success", "example/failure"  # facts [N, 1, O]: what each row teaches the classifier


@dataclass(frozen=True, kw_only=True)
class ClassifiedReward(AbstractAround):
    """Pays for what a classifier takes for a success, and nothing else; the environment's own rewards are not read (SERL,
    arXiv:2401.16013, with the negatives of VICE, arXiv:1805.11686).

    The last observation of each of the recorded episodes ``examples`` is a success s, all before it are failures f. With log-odds g(o),
    for each minibatch of K steps (o, a, o'), in this order, w being 1 / K:

        classifier    sum w (softplus(-g(s)) + softplus(g(n))),   n = o' in a share ``online`` of the steps, else a recorded failure
        inside        its losses, with r = 1 where g(o') > 0, else 0, by the classifier as the learner step began

    s and f are drawn anew for each step, any as likely as any other. A classifier that has seen the recorded failures alone may say
    anything of other places, and the policy finds those that it is wrong about: as failures they are unlearned
    (with a store whose minibatches are half recorded, a quarter of the failures at ``online`` = .5). Real successes among
    them do no harm as long as they are less dense there than the examples are: g is the logarithm of how much denser the examples are.

    - ``online`` = 0: a classifier of the recorded observations alone, as SERL's by default.
    - g above 0 at the goal alone: ``inside`` on a reward of 1 at the goal.

    ``classifier/paid`` is the share of the steps that came in which were paid, ``classifier/success`` and ``classifier/failure`` the
    mean probabilities of success of both kinds of examples. An environment's own ends stay ends. Observations are vectors: no camera.

    Ours: all sizes, one move of the classifier with each of the critic. Left out: SERL's picture features, mixup and label smoothing.

    Confidence: partial; from the cards of both and the papers' descriptions.
    """

    examples: Minari
    online: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    classifier_learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        filled(self.hidden)
        if not 0 <= self.online <= 1 or not 0 <= self.classifier_learning_rate < math.inf:
            raise ValueError(
                f"ClassifiedReward has online {self.online} (from 0 to 1) and classifier_learning_rate "
                f"{self.classifier_learning_rate} (0 or above)"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from single_steps(self, whole)
        yield from unlike(self.examples, whole)

    def models(self) -> dict[str, ModelSpec]:
        rate = self.inside.optimization.adamw(self.classifier_learning_rate)
        return {**self.inside.models(), CLASSIFIER: ModelSpec(load=self.classifier, optimizer=rate)}

    def classifier(self, seed: int) -> nn.Module:
        return relu_mlp([self.examples.recording.observations, *self.hidden, 1], stable_hash(CLASSIFIER, seed) % 2**63)

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        paid_NS = self.succeeds(models, steps_of(batch).next_NSO).float()
        batch = batch.with_columns({"reward_NS": paid_NS.to(batch.column("reward_NS", self))})
        came = fresh(batch)
        told = {} if came is None else {"classifier/paid": float(came.column("reward_NS", self).mean())}
        if MOVE not in batch.facts or not bool((batch.facts[MOVE] == FRESH).all()):
            batch = batch.with_columns(self._drawn(models, batch))
        batch, more = self.inside.prepare(models, batch)
        return batch, {**more, **told}

    @torch.no_grad()
    def succeeds(self, models: Models, seen_NSO: Float[Tensor, "N S O"]) -> Bool[Tensor, "N S"]:
        """What is paid for."""
        return models[CLASSIFIER](_acting(models).normal(seen_NSO.to(models.device)))[..., 0] > 0

    @cached_property
    def _kinds(self) -> tuple[Float[Tensor, "E O"], Float[Tensor, "F O"]]:
        """All recorded successes, and all recorded failures."""
        seen = [episode.observation_SO for episode in self.examples.recording.episodes]
        success_EO, failure_FO = (np.concatenate([x[kind] for x in seen]) for kind in (np.s_[-1:], np.s_[:-1]))
        return torch.from_numpy(success_EO), torch.from_numpy(failure_FO)

    def _drawn(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        """An example of each kind for each row."""
        (success_EO, failure_FO), draws, count = self._kinds, models.random(CLASSIFIER), batch.shape[0]
        success_NO = success_EO[draws.integers(len(success_EO), size=count)]
        failure_NO = failure_FO[draws.integers(len(failure_FO), size=count)]
        own_N1 = torch.from_numpy(draws.random((count, 1)) < self.online)
        failure_NO = torch.where(own_N1, steps_of(batch).next_NSO[:, 0].cpu(), failure_NO)
        return {SUCCESS: success_NO[:, None], FAILURE: failure_NO[:, None]}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return self.inside.survey(models, minibatch)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        counted, normal = counted_of(batch), _acting(models).normal
        weight_K = counted(batch.facts["weight"])
        good_K, bad_K = (models[CLASSIFIER](normal(counted(batch.facts[name])))[:, 0] for name in (SUCCESS, FAILURE))
        loss_K = nn.functional.softplus(-good_K) + nn.functional.softplus(bad_K)
        said = {"success": good_K.sigmoid(), "failure": bad_K.sigmoid(), "loss": loss_K}
        told = means(weight_K, {f"{CLASSIFIER}/{name}": x_K for name, x_K in said.items()})
        yield Loss(of=(CLASSIFIER,), value=summed(weight_K, loss_K), metrics=told)
        yield from self.inside.losses(models, batch)


def _acting(models: Models) -> AbstractControlPolicy:
    policy = models.policy
    assert isinstance(policy, AbstractControlPolicy), type(policy)
    return policy
