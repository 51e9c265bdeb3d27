"""The learner as the rest of a run sees it, wherever its policy is: in this process, sharded over several, or elsewhere.

The runtime needs nothing more. It has its own policy (``Trainer.policy``) for the architecture, the tokenizer and the
engines; whether that is the trained one is up to the learner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.engines.receipts import tensors
from gimbal.learning.updates.base import AbstractUpdate, Metrics
from gimbal.policies.base import AbstractPolicy
from gimbal.records import AbstractDecisions, Group, TrainBatch


class AbstractTrained(ABC):
    """The source of the samplers' weights, and its view of recorded decisions: the trainer's side of every proof of delivery."""

    @property
    @abstractmethod
    def compute(self) -> torch.dtype | None:
        """The type that log-probabilities are computed in, where that is not the weights' own."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """What training changes, whole: this is what travels."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """What a policy of the same architecture loads."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """All that a forward pass reads, under every name."""

    @abstractmethod
    def logprobs(self, decisions: AbstractDecisions, temperature: float) -> Float[Tensor, "N S"]:
        """Of these decisions by the present weights, without gradient, float32, on the CPU."""

    @property
    def separate(self) -> Mapping[str, AbstractTrained]:
        """The models that are trained beside the policy, for roles with weights of their own, by name."""
        return {}


class AbstractLocal(AbstractTrained):
    """Its whole policy is in this process."""

    policy: AbstractPolicy

    @property
    def compute(self) -> torch.dtype | None:
        return self.policy.compute

    def weights(self) -> dict[str, Tensor]:
        return self.policy.weights()

    def state_dict(self) -> dict[str, Tensor]:
        return self.policy.state_dict()

    def tensors(self) -> dict[str, Tensor]:
        return tensors(self.policy)

    def logprobs(self, decisions: AbstractDecisions, temperature: float) -> Float[Tensor, "N S"]:
        device = next(self.policy.parameters()).device
        with torch.inference_mode():
            found = self.policy.evaluate(decisions.to(device), temperature=temperature)
        return found.logprob_NS.float().cpu()


class OfPolicy(AbstractLocal):
    """A policy, and those of roles with weights of their own."""

    def __init__(self, policy: AbstractPolicy, separate: Mapping[str, AbstractPolicy] | None = None) -> None:
        self.policy, self._separate = policy, dict(separate or {})

    @property
    def separate(self) -> Mapping[str, AbstractTrained]:
        return {name: OfPolicy(policy) for name, policy in self._separate.items()}


class AbstractLearner(AbstractTrained):
    """Takes the steps of a run."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Steps taken."""

    @property
    @abstractmethod
    def update(self) -> AbstractUpdate:
        """The update with the controllers' present values in place."""

    @abstractmethod
    def prepare(self, batch: TrainBatch) -> TrainBatch:
        """The batch with the columns that its update needs before anything moves."""

    @abstractmethod
    def step(self, batch: TrainBatch) -> Metrics:
        """Train on one prepared batch: ``epochs`` x ``minibatches`` passes of the update's losses, then version + 1."""

    @abstractmethod
    def control(self, metrics: Mapping[str, float]) -> Metrics:
        """Let parts remember the step just taken, and controllers move their coefficients by it; returns what both are at now."""

    @abstractmethod
    def errors(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        """The error of the present values at each row's decision; only for an update with the effect ``composition.TELLS_ERRORS``."""

    @abstractmethod
    def arrived(self, group: Group) -> None:
        """A group starts waiting for its batch."""

    @abstractmethod
    def before_update(self, held: Callable[[], Sequence[Group]]) -> None:
        """The step is about to move the weights; ``held`` gives everything that they and older ones sampled for later steps."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """The policy, into the layout that its spec's ``model`` loads from."""

    @abstractmethod
    def save_state(self) -> dict[str, Any]:
        """Everything else that the next step depends on, except the recipe: see ``load_state``."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``save_state``, with a policy that was loaded from where it was saved at the same time."""

    @abstractmethod
    def close(self) -> None:
        """Let other processes end, if there are any."""


class AbstractLocalLearner(AbstractLocal, AbstractLearner):
    """A learner whose whole policy is in this process."""

    def save(self, directory: Path) -> None:
        self.policy.save(directory)
        for name, one in self.separate.items():
            assert isinstance(one, OfPolicy), type(one)
            (directory / name).mkdir(parents=True, exist_ok=True)
            one.policy.save(directory / name)


def trained(source: AbstractPolicy | AbstractTrained) -> AbstractTrained:
    """A policy as a source of weights; such a source as it is."""
    return OfPolicy(source) if isinstance(source, AbstractPolicy) else source
