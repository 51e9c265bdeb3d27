"""Drafters: a drafter guesses the next tokens of the live rows, and the engine samples several positions in one pass of the model.

A drafted position is sampled as in plain decoding: from the model's own distribution, with that position's random number. The draft
only sets the context of the next position; once the sampled token differs, the rest is discarded. So tokens equal plain decoding's for
any draft, up to the rounding of a wide pass, and log-probabilities are the model's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from gimbal.composition import AbstractPart
from gimbal.engines.base import Request

PRIOR, WEIGHT = 0.95, 4.0  # the acceptance that is believed at first, and as how many drafted tokens
KEPT = 0.98  # of the evidence, from one drafted pass to the next: about the last 50 count
PROBE = 64  # passes without drafts, where only their acceptance speaks against them, until they are tried again
LEAD = 4  # times ``longest`` that a row may be drawn ahead of what it shows


@dataclass(frozen=True)
class Fronts:
    """The live rows as a drafter sees them. ``known_B`` tokens of each are certain; all but the newest are in the cache."""

    slots: int  # rows that there may be
    requests: Sequence[Request]
    prompts: Sequence[int]  # tokens of each
    ids_BL: Int[Tensor, "B L"]
    known_B: Int[Tensor, " B"]
    # (model, ids, j) -> the samples at position known + j, with its random numbers, from a model fed these ids after known - 1 + j
    # tokens. It reads the engine's keys and values and writes its own after them, where the next wide pass writes the true ones.
    guess: Callable[[Any, Int[Tensor, " B"], int], Int[Tensor, " B"]]
    # (logits, j) -> the samples at position known + j from these logits, with its random numbers.
    sample: Callable[[Float[Tensor, "B V"], int], Int[Tensor, " B"]]
    ends: Int[Tensor, " E"]  # tokens that end a text


def read(model: Any) -> float:
    """Bytes of weights that a forward pass reads: all but embeddings, of which it reads a few rows. A tied output layer is read."""
    head = model.get_output_embeddings()
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} - {id(head.weight)}
    return float(sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in tables))


class AbstractDrafts(ABC):
    """A live drafter. Its proposals may depend on anything saved with the run, never on the clock."""

    @abstractmethod
    def propose(self, fronts: Fronts, most: Sequence[int]) -> list[list[int]]:
        """Of each row the next tokens, up to ``most`` of them; fewer or none where it has no guess."""

    def load(self) -> None:
        """The engine's model has new weights."""
        return None

    def verified(self, token_BK: Int[Tensor, "B K"]) -> None:
        """What was proposed last has been tested: ``token_BK`` was sampled where it stood, each behind the draft up to there."""
        return None

    def moved(self, source: int, target: int) -> None:
        """The row at ``source`` is at ``target`` from now on, whose own row has left."""
        return None

    def rest(self) -> None:
        """Release what is computed again from tokens. Nothing is in flight."""
        return None

    def metrics(self) -> dict[str, float]:
        """Since the last call."""
        return {}

    def ended(self, request: Request, ids: Sequence[int], prompt: int) -> None:
        """A row has ended with these tokens, the first ``prompt`` of which are its prompt."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True)
class Costs:
    """Costs of a forward pass for one row, in bytes read in the same time: of the model and of the drafter."""

    model: float
    draft: float
    slope: float  # of a further token in a pass, as a share of reading the weights
    overhead: float
    draft_overhead: float

    def gain(self, rows: int, drafted: int, acceptance: float) -> float:
        """Speed-up over plain decoding of drafting that many tokens per pass."""
        tokens = sum(acceptance**j for j in range(drafted + 1))

        def takes(overhead: float, weights: float, width: int) -> float:
            return overhead + weights * (1 + self.slope * (width - 1))

        drafting = drafted * takes(self.draft_overhead, self.draft, rows) if self.draft else 0.0
        plain, wide = (takes(self.overhead, self.model, width) for width in (rows, rows * (drafted + 1)))
        return tokens * plain / (drafting + wide)


@dataclass(frozen=True, kw_only=True)
class AbstractDrafter(AbstractPart):
    """The saved, frozen configuration of a drafter, and when it drafts.

    A pass over ``rows`` rows with d drafted tokens each gives L = 1 + a + ... + a^d tokens per row, a the running acceptance of a
    drafted token, in the time that ``Costs`` states. d <= ``longest`` is the one with the largest gain, and 0 below 1 + ``margin``.
    ``slope``: the cost of one more token in a pass, as a share of reading the weights. ``overhead``: the cost of calling a layer, in
    bytes of weights read in that time. Both describe the machine; nothing depends on the clock.
    """

    longest: int = 8
    slope: float = 0.1
    overhead: float = 4e6
    margin: float = 0.1

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise ValueError(f"engine.drafter.longest is {self.longest}; at least one token is drafted: 1 or more")
        for name in ("slope", "overhead"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"engine.drafter.{name} is {getattr(self, name)}; it is a cost: 0 or more")

    @abstractmethod
    def start(self, model: Any) -> tuple[AbstractDrafts, Costs]:
        """A live drafter for the engine's own copy of the model."""

    def costs(self, model: Any, draft: float, drafter: Any = None) -> Costs:
        """Where the drafter reads ``draft`` bytes for a token, 0 where it is no model. ``drafter``: whose layers are called; None:
        the model's."""
        own, its = (m.config.get_text_config().num_hidden_layers for m in (model, drafter or model))
        called = {"overhead": self.overhead * own, "draft_overhead": self.overhead * its}
        return Costs(model=read(model), draft=draft, slope=self.slope, **called)


class Length:
    """How many tokens to draft, given the acceptance so far, the number of rows and the costs."""

    def __init__(self, spec: AbstractDrafter, costs: Costs) -> None:
        self.spec, self.costs = spec, costs
        self.accepted, self.tested = PRIOR * WEIGHT, WEIGHT
        self.idle = 0  # passes without drafts since the last with them
        self.seen: Counter[str] = Counter()  # since the metrics were read

    @property
    def acceptance(self) -> float:
        return self.accepted / self.tested

    def most(self, rows: int) -> int:
        found = self._best(rows, self.acceptance)
        if found == 0 and self.idle >= PROBE and self._best(rows, PRIOR):
            found = min(2, self.spec.longest)
        return found

    def observe(self, proposed: Sequence[int], accepted: Sequence[int], drawn: int) -> None:
        """For one pass: each row's drafted ([]: none) and accepted tokens, and the total sampled."""
        self.seen.update(passes=1, rows=len(accepted), tokens=drawn)
        if not any(proposed):
            self.idle += 1
            return
        self.idle = 0
        right, asked = sum(accepted), sum(map(bool, proposed))
        self.seen.update(drafting=1, asked=asked, drafted=sum(proposed), accepted=right)
        # What stands behind a rejected token was not put to the test.
        tested = sum(min(hits + 1, count) for hits, count in zip(accepted, proposed, strict=True))
        self.accepted = KEPT * self.accepted + right
        self.tested = KEPT * self.tested + tested

    def metrics(self) -> dict[str, float]:
        """Since the last call."""
        seen, self.seen = self.seen, Counter()
        found = {"acceptance": self.acceptance}
        if seen["tokens"]:
            found["drafting_frac"] = seen["drafting"] / seen["passes"]
            found["passes_per_token"] = seen["rows"] / seen["tokens"]
        if seen["drafted"]:
            found["accepted_frac"] = seen["accepted"] / seen["drafted"]
            found["accepted_per_row"] = seen["accepted"] / seen["asked"]
        return {f"drafts/{name}": value for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        held = {"accepted": self.accepted, "tested": self.tested, "idle": self.idle}
        return held | {"seen": dict(self.seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.accepted, self.tested, self.idle = state["accepted"], state["tested"], state["idle"]
        self.seen = Counter(state["seen"])

    def _best(self, rows: int, acceptance: float) -> int:
        gains = [self.costs.gain(rows, drafted, acceptance) for drafted in range(self.spec.longest + 1)]
        best = max(range(len(gains)), key=lambda drafted: gains[drafted])
        return best if gains[best] >= 1 + self.spec.margin else 0
