"""What a policy and its evaluation are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.records import AbstractDecisions, AbstractSampling, Task


def place_of(model: str, shipped: Collection[str]) -> str:
    """The directory of a model that is shipped in the package; any other name as it is."""
    return str(Path(__file__).parents[1] / "assets" / model) if model in shipped else model


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Log-probabilities of recorded decisions under the policy, with gradient, and other requested outputs of the same forward pass.

    ``columns`` are among what the policy ``provides``: ``entropy_NS`` of each distribution; ``hidden_NSH``, the last hidden state it
    was computed from; ``logprob_NSV``, all its log-probabilities, which needs the memory of a full logits tensor; or any other of shape
    [N, S, ...].
    """

    logprob_NS: Float[Tensor, "N S"]
    columns: Mapping[str, Tensor] = field(default_factory=dict)


class AbstractPolicy(nn.Module, ABC):
    """A torch module that evaluates decisions. Sampling is up to an engine of its family.

    ``provides`` names the columns that ``evaluate`` can return; a part that needs another one is refused. ``compute`` is the type that
    ``evaluate`` computes in, where it differs from the weights'.
    """

    provides: ClassVar[frozenset[str]] = frozenset()
    compute: torch.dtype | None = None

    @abstractmethod
    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        columns: Collection[str] = (),
        checkpointing: bool = False,
    ) -> Evaluation:
        """Padding positions hold 0. ``columns``: see ``Evaluation``. ``temperature`` is the one the decisions were sampled at."""

    def extent(self, decisions: AbstractDecisions) -> tuple[int, int]:
        """Sequences of a forward pass over these rows, and the positions of each; micro-batches are measured in their product."""
        return decisions.extent

    @abstractmethod
    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        """Each decision of the first row as a person would read it."""

    def accepts(self, task: Task, length: int) -> str:
        """ValueError for a task that cannot be sampled; else any doubt about sampling that many decisions for it ("" is none). Called
        before the first step."""
        return ""

    def reads(self, other: AbstractPolicy) -> str:
        """Why it cannot evaluate decisions of another policy ("" if it can): a reference must be of the same family."""
        return (
            ""
            if type(self) is type(other)
            else f"it is a {type(self).__name__}, and the policy a {type(other).__name__}"
        )

    def weights(self) -> dict[str, Tensor]:
        """The trained tensors, by their names in ``state_dict``. These are sent to samplers, which have the rest."""
        return self.state_dict()

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the layout that the spec's ``model`` loads from."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """How runs of a kind of policy are reported: the units of their figures, and which figures are meaningful.

    ``unit`` is the user's word for a decision, in sentences and in names of metrics. ``judged``: the output is an answer that may be
    right, of a length the policy chooses; else an episode has a return and the environment sets its length. ``densities``: its
    log-probabilities are of densities, whose differences have no scale. ``likelihoods``: it has log-probabilities; else what stands
    in their place shows only whose weights drew a decision. ``sampling``: the record of how they are sampled.
    ``earns``: the user's word for what a rollout earns. ``pays``: without a reward, rollouts have a score all the same, their
    environment's.
    """

    unit: str
    sampling: type[AbstractSampling] = AbstractSampling
    judged: bool = False
    densities: bool = False
    likelihoods: bool = True
    earns: str = "return"
    pays: bool = True


class AbstractPolicySpec(AbstractPart, ABC):
    """The saved, frozen configuration of a policy; ``load`` makes the live one, in evaluation mode."""

    family: ClassVar[Family] = Family(unit="decisions")
    shipped: ClassVar[tuple[str, ...]] = ()  # the names of its models in the package

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        held_out, wanted = whole.run.held_out, self.family.sampling
        evaluated = [] if held_out is None or held_out.sampling is None else [("held_out.sampling", held_out.sampling)]
        for place, given in [("sampling", whole.run.sampling), *evaluated]:
            if isinstance(given, wanted):
                continue
            yield Refusal(
                f"{place} is {type(given).__name__}, which does not fit {type(self).__name__}: it samples {self.family.unit} by "
                f"{place}={wanted.__name__}({', '.join(item.name + '=...' for item in fields(wanted))})"
            )

    @abstractmethod
    def load(self, seed: int = 0) -> AbstractPolicy:
        """``seed`` initialises the weights of a policy that is not read from disk."""

    def check_files(self) -> None:
        """ValueError if ``load`` has nothing to load. A dry run calls it, so it is quick and needs no network connection.

        By default it loads, which is quick for small networks.
        """
        self.load()

    @abstractmethod
    def at(self, directory: Path) -> AbstractPolicySpec:
        """The same specification with the weights saved in this directory."""
