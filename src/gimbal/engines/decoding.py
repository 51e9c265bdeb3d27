"""One pass of the model over the live rows of the native engine: the next token of each, and more where a drafter guessed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.engines.base import Request
from gimbal.engines.cache import EXTENT, SlotCache, check_continues, read_on
from gimbal.engines.drafting.base import LEAD, AbstractDrafter, Fronts, Length
from gimbal.engines.graphs import Graphs
from gimbal.engines.sampling import Distributions, draw

# Recorded for a decision on request; decisions that were passed on have none.
NOTED = ("entropy_BL", "rival_BL", "rival_logprob_BL")
POSITIONS = ("ids_BL", "behavior_BL", "version_BL", "uniform_BL", *NOTED)  # by row and position


class RowTable:
    """The rows of the engine as parallel arrays. A row exposes its first ``length`` tokens; ``known`` are set, the rest is unused."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self.device = device
        self.length_B, self.known_B, self.limit_B = torch.zeros(3, slots, dtype=torch.long, device=device).unbind()
        self.ids_BL = torch.zeros(slots, 0, dtype=torch.long, device=device)
        self.behavior_BL = torch.zeros(slots, 0, device=device)
        self.entropy_BL = torch.zeros(slots, 0, device=device)
        self.rival_BL = torch.zeros(slots, 0, dtype=torch.long, device=device)
        self.rival_logprob_BL = torch.zeros(slots, 0, device=device)
        self.version_BL = torch.zeros(slots, 0, dtype=torch.long, device=device)
        self.uniform_BL = torch.zeros(slots, 0, dtype=torch.float64, device=device)
        self.longest = 0  # known_B of the live rows, kept here to avoid asking the device

    def reserve(self, length: int) -> None:
        if length > self.ids_BL.shape[1]:
            grow = max(length, 2 * self.ids_BL.shape[1]) - self.ids_BL.shape[1]
            for name in POSITIONS:
                setattr(self, name, torch.nn.functional.pad(getattr(self, name), (0, grow)))

    def move(self, source: int, target: int) -> None:
        for name in (*POSITIONS, "length_B", "known_B", "limit_B"):
            tensor = getattr(self, name)
            tensor[target] = tensor[source]

    def store(self, row: int) -> dict[str, Tensor]:
        """The tokens of each row that are sampled but not exposed yet."""
        span = slice(int(self.length_B[row]), int(self.known_B[row]))
        return {name: getattr(self, name)[row, span].clone() for name in POSITIONS}

    def restore(self, row: int, store: Mapping[str, Tensor]) -> None:
        for name, values in store.items():
            first = int(self.length_B[row])
            getattr(self, name)[row, first : first + len(values)] = values.to(self.device)
            self.known_B[row] = first + len(values)
        self.longest = max(self.longest, int(self.known_B[row]))

    def measure(self, n: int) -> None:
        self.longest = int(self.known_B[:n].max()) if n else 0

    def show(self, n: int) -> Int[Tensor, " B"]:
        """Expose one more decision of each row."""
        token_B = self.ids_BL[torch.arange(n, device=self.device), self.length_B[:n]]
        self.length_B[:n] += 1
        return token_B

    def void(self, n: int) -> None:
        """Drop what is not exposed yet."""
        self.known_B.copy_(self.length_B)
        self.measure(n)


class Decoder:
    """Samples from the engine's model, using its cache, into the table."""

    def __init__(
        self, model: Any, table: RowTable, slots: SlotCache, drafter: AbstractDrafter | None, *, graphs: bool
    ) -> None:
        self.model, self.table, self.slots = model, table, slots
        self.graphs = Graphs(model, slots) if graphs and table.device.type == "cuda" else None
        self.computed = 0  # tokens that rollouts have put through the model
        self.distributions: Distributions | None = None  # of the present rows
        self.drafts = self.pace = None
        if drafter is not None:
            check_continues(model, width=3)
            self.drafts, costs = drafter.start(model)
            self.pace = Length(drafter, costs)

    def state_dict(self) -> dict[str, Any]:
        """The state of drafting; {} without a drafter."""
        if self.drafts is None or self.pace is None:
            return {}
        return {"of": type(self.drafts).__name__, "pace": self.pace.state_dict(), "drafts": self.drafts.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """A run resumed with another drafter starts from that drafter's initial state."""
        if self.drafts is not None and self.pace is not None and state.get("of") == type(self.drafts).__name__:
            self.pace.load_state_dict(state["pace"])
            self.drafts.load_state_dict(state["drafts"])

    def metrics(self) -> dict[str, float]:
        """Since the last call; {} without a drafter."""
        return {} if self.drafts is None or self.pace is None else {**self.pace.metrics(), **self.drafts.metrics()}

    def rest(self) -> None:
        """Free what is held for the next passes."""
        if self.graphs is not None:
            self.graphs.forget()
        if self.drafts is not None:
            self.drafts.rest()

    @property
    def spare(self) -> int:
        """Positions beyond the limit of a row, where it is padded because other rows draft more."""
        return 0 if self.pace is None else self.pace.spec.longest

    def due(self, n: int) -> bool:
        """Whether some row has no sampled token left to expose."""
        return self.pace is None or bool((self.table.known_B[:n] == self.table.length_B[:n]).any())

    def draw(
        self, rows: Sequence[tuple[Request, int]], version: int, ends: Int[Tensor, " E"], *, entropy: bool, rivals: bool
    ) -> None:
        """The next token of every row, and further ones as long as the draft matches the samples.

        ``rows``: the requests, and how many tokens their prompts have.
        """
        table, n = self.table, len(rows)
        if self.distributions is None:
            self.distributions = Distributions.of([request.sampling for request, _ in rows], table.device)
        live, known_B = torch.arange(n, device=table.device), table.known_B[:n].clone()
        # A row sampled to its end that is not exposed yet gets nothing more.
        over_B = torch.isin(table.ids_BL[live, known_B - 1], ends) | (known_B >= table.limit_B[:n])
        over_B &= known_B > table.length_B[:n]
        counts = self._drafted(rows, over_B, ends)
        width = 1 + max(counts, default=0)
        step_K = torch.arange(width, device=table.device)
        position_BK = known_B[:, None] + step_K  # that are drawn
        logits_BKV = self.forward(self.model, table.ids_BL.gather(1, position_BK - 1), position_BK - 1, width - 1)
        uniform_N = table.uniform_BL[:n].gather(1, position_BK).flatten()
        token_N, behavior_N, logprob_NV = draw(logits_BKV.flatten(0, 1), uniform_N, self.distributions.repeated(width))
        self.computed += n * width
        advance_B = torch.ones_like(known_B)
        if self.pace is not None:
            token_BK, count_B = token_N.view(n, width), torch.tensor(counts or [0] * n, device=table.device)
            right_BK = (table.ids_BL[:n].gather(1, position_BK) == token_BK) & (step_K < count_B[:, None])
            if counts and self.drafts is not None:
                self.drafts.verified(token_BK)
            right_BK &= ~torch.isin(token_BK, ends)  # nothing comes after an end
            advance_B = (1 + right_BK.cumprod(1).sum(1)).masked_fill(over_B, 0)
            self.pace.observe(counts, (advance_B - 1).clamp(min=0).tolist(), int(advance_B.sum()))
        row_D, at_D, of_D = live, known_B, live
        if self.pace is not None:
            row_D, step_D = (step_K < advance_B[:, None]).nonzero(as_tuple=True)
            at_D, of_D = known_B[row_D] + step_D, row_D * width + step_D
        table.ids_BL[row_D, at_D] = token_N[of_D]
        table.behavior_BL[row_D, at_D] = behavior_N[of_D]
        table.version_BL[row_D, at_D] = version
        if entropy:
            table.entropy_BL[row_D, at_D] = torch.special.entr(logprob_NV.exp()).sum(-1)[of_D]
        if rivals:
            two_N2, id_N2 = logprob_NV.index_fill(-1, ends, -torch.inf).topk(2, dim=-1)
            place_N1 = (id_N2[:, :1] == token_N[:, None]).long()  # the second where the first was drawn
            for column_BL, found_N2 in ((table.rival_BL, id_N2), (table.rival_logprob_BL, two_N2)):
                column_BL[row_D, at_D] = found_N2.gather(-1, place_N1)[:, 0][of_D]
        table.known_B[:n] += advance_B
        if self.pace is None:
            table.longest += 1
        else:
            table.measure(n)

    def _drafted(self, rows: Sequence[tuple[Request, int]], over_B: Tensor, ends: Tensor) -> list[int]:
        """Writes drafts after the rows' known tokens; returns the number per row, [] where nothing was drafted."""
        table, n = self.table, len(rows)
        if self.drafts is None or self.pace is None or not (longest := self.pace.most(n)):
            return []
        known, length = table.known_B[:n].tolist(), table.length_B[:n].tolist()
        most = [
            0 if over or at - shown >= LEAD * self.pace.spec.longest else max(0, min(longest, limit - 1 - at))
            for over, at, shown, limit in zip(over_B.tolist(), known, length, table.limit_B[:n].tolist(), strict=True)
        ]
        if not any(most):
            return []
        fronts = Fronts(
            slots=self.slots.slots,
            requests=[request for request, _ in rows],
            prompts=[prompt for _, prompt in rows],
            ids_BL=table.ids_BL[:n],
            known_B=table.known_B[:n],
            guess=self._guess,
            sample=self._sample,
            ends=ends,
        )
        drafts = self.drafts.propose(fronts, most)
        for row, (at, ids) in enumerate(zip(known, drafts, strict=True)):
            table.ids_BL[row, at : at + len(ids)] = torch.tensor(ids, dtype=torch.long, device=table.device)
        return [len(ids) for ids in drafts]

    def _guess(self, model: Any, id_B: Int[Tensor, " B"], step: int) -> Int[Tensor, " B"]:
        position_B1 = (self.table.known_B[: len(id_B)] + step)[:, None]
        return self._sample(self.forward(model, id_B[:, None], position_B1 - 1, step)[:, -1], step)

    def _sample(self, logits_BV: Float[Tensor, "B V"], step: int) -> Int[Tensor, " B"]:
        assert self.distributions is not None
        position_B1 = (self.table.known_B[: len(logits_BV)] + step)[:, None]
        uniform_B = self.table.uniform_BL[: len(logits_BV)].gather(1, position_B1)[:, 0]
        return draw(logits_BV, uniform_B, self.distributions)[0]

    def forward(
        self, model: Any, id_BK: Int[Tensor, "B K"], position_BK: Int[Tensor, "B K"], beyond: int
    ) -> Float[Tensor, "B K V"]:
        """Logits after these tokens of the live rows; the last token is ``beyond`` the newest known one."""
        extent = -(-(self.table.longest + beyond) // EXTENT) * EXTENT
        if self.graphs is not None and model is self.model and id_BK.shape[1] == 1 and not beyond:
            return self.graphs(id_BK, position_BK, extent)
        # Padding may reach beyond the model's positions.
        most_B = self.table.limit_B[: len(id_BK)] - 1 if beyond else None
        return read_on(model, self.slots, id_BK, position_BK, extent, most_B)
