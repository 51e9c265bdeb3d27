"""Generation by unmasking: a rollout is a text that is filled in, several cells in each forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngineSpec, Request, check_slots
from gimbal.engines.precision import Precision
from gimbal.engines.stepwise import AbstractStepwise
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.commits import GIVEN, REVIEW, WHERE, Commits, MaskedSampling, choice, chosen, doubt, reviewed
from gimbal.policies.masked import MaskedPolicy, told
from gimbal.records import AbstractSampling, Part, Rollout

# Mean |log-prob gap| to a float32 trainer at equal weights that each precision explains. Measured on gimbal-sudoku: docs/masked.md.
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.05}


@dataclass(kw_only=True)
class LiveText:
    """A text in progress: ``cells`` are masked until they are committed. The other lists have one entry per decision."""

    request: Request
    sampling: MaskedSampling
    policy: MaskedPolicy
    prompt: list[int]
    cells: list[int]
    passes: int = 0
    place: list[int] = field(default_factory=list)
    token: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)  # the pass of each
    seen: list[int] = field(default_factory=list)
    behavior: list[float] = field(default_factory=list)
    counts: list[bool] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        return self.passes > 0

    @property
    def front(self) -> int:
        """The first masked cell, behind the last where none is."""
        return self.cells.index(self.policy.mask) if self.policy.mask in self.cells else len(self.cells)

    @property
    def sees(self) -> int:
        """Cells that its next pass sees."""
        return self.sampling.seen(self.front)

    @property
    def given(self) -> list[int]:
        """Cells that the task gave."""
        if not self.sampling.scaffold:
            return []
        return [cell for cell, at in zip(self.place, self.at, strict=True) if at == GIVEN]

    @property
    def ends(self) -> bool:
        """Whether it holds an end-of-text token."""
        return self.policy.end in self.cells[: self.front]

    @property
    def full(self) -> bool:
        front = self.front
        return front == len(self.cells) or (self.begun and self.ends and front >= self.seen[-1])

    @property
    def done(self) -> bool:
        """Full, and not to be read again: or was, and nothing was masked."""
        return self.full and (self.place[-1] == REVIEW or self.place.count(REVIEW) == self.sampling.reviews)

    @property
    def spread(self) -> float:
        return self.sampling.spread if self.sampling.temperature > 0 else 0.0

    def decide(self, place: int, token: int, logprob: float, version: int, *, seen: int, counts: bool = True) -> None:
        self.place.append(place)
        self.token.append(token)
        self.behavior.append(logprob)
        self.counts.append(counts)
        self.versions.append(version)
        self.at.append(self.passes)
        self.seen.append(seen)
        if place >= 0:
            self.cells[place] = token

    def give(self, version: int) -> None:
        """Record the cells that the task gave, ahead of its first pass."""
        given = [] if self.begun else [cell for cell, token in enumerate(self.cells) if token != self.policy.mask]
        for cell in given:
            self.decide(cell, self.cells[cell], 0.0, version, seen=len(self.cells), counts=False)
            self.at[-1] = GIVEN

    def rollout(self, stop: str) -> Rollout:
        place_S = torch.tensor(self.place)
        without_end = self.policy.end is not None and not self.ends
        return Rollout(
            task=self.request.task,
            sample=self.request.sample,
            row=self.request.row,
            given=len(self.given),
            decisions=Commits(
                prompt_NP=torch.tensor([self.prompt]),
                prompt_N=torch.tensor([len(self.prompt)]),
                place_NS=place_S[None],
                token_NS=torch.tensor([self.token]),
                pass_NS=torch.tensor([self.at]),
                seen_NS=torch.tensor([self.seen]),
                length_N=torch.tensor([len(self.place)]),
                threshold_N=torch.tensor([self.sampling.threshold]),
                spread_N=torch.tensor([self.spread]),
                keep_N=torch.tensor([self.sampling.keep]),
                mask=self.policy.mask,
                end=-1 if self.policy.end is None else self.policy.end,
            ),
            behavior_S=torch.tensor(self.behavior),
            version_S=torch.tensor(self.versions),
            mask_S=torch.tensor(self.counts),
            reward_S=torch.zeros(len(self.place)),
            part_S=torch.where(place_S < 0, Part.CONTROL, Part.RESPONSE) if self.spread else None,
            stop="length" if stop == "stop" and without_end else stop,
            sampling=self.sampling,
            text=self.policy.text(self.cells),
        )


class UnmaskingEngine(AbstractStepwise[LiveText, MaskedPolicy]):
    """At most ``slots`` texts in progress; a step is one forward pass of each, whatever its width and its settings."""

    def __init__(self, policy: MaskedPolicy, spec: Unmasking) -> None:
        super().__init__(policy, spec.slots, spec.precision, TOLERANCE[spec.precision])

    def check(self, sampling: AbstractSampling) -> None:
        _of_masked(sampling)

    def begin(self, request: Request) -> LiveText:
        sampling = _of_masked(request.sampling)
        return LiveText(
            request=request,
            sampling=sampling,
            policy=self._policy,
            prompt=self._policy.prompt(request.task),
            cells=self._policy.cells(request.task, sampling),
        )

    def advance(self, live: Sequence[LiveText]) -> None:
        """The next forward pass of each."""
        for text in live:
            text.give(self._version)
        seen = [text.sees for text in live]
        width_M = torch.tensor([len(text.prompt) + n for text, n in zip(live, seen, strict=True)])
        text_ML = torch.full((len(live), int(width_M.max())), 0)
        asked_ML = torch.zeros_like(text_ML, dtype=torch.bool)
        reviews_M1 = torch.tensor([text.full for text in live])[:, None]
        # Random numbers: for the first cell that is committed, for the others, and for the tokens.
        first_u_M, uniform_ML = torch.zeros(len(live), 1).double(), torch.zeros(2, *text_ML.shape, dtype=torch.float64)
        for m, (text, n) in enumerate(zip(live, seen, strict=True)):
            start, end = len(text.prompt), len(text.prompt) + n
            text_ML[m, :end] = torch.tensor([*text.prompt, *text.cells[:n]])
            asked_ML[m, start:end] = (text_ML[m, start:end] == self._policy.mask) | reviews_M1[m]
            asked_ML[m, [start + cell for cell in text.given if cell < n]] = False
            drawn = torch.from_numpy(philox("unmask", *text.request.stream, text.passes).random(2 * n + 1))
            first_u_M[m], uniform_ML[:, m, start:end] = drawn[0], drawn[1:].view(2, n)
        temperature_M = torch.tensor([text.sampling.temperature for text in live])
        keeps_M = torch.tensor([not text.sampling.in_place for text in live]) & reviews_M1[:, 0]
        parts = (text_ML, width_M, asked_ML, reviews_M1[:, 0], keeps_M, uniform_ML[1], temperature_M)
        token_ML, logprob_ML, confidence_ML = self._read(*(part.to(self.device) for part in parts))
        filling, reading = (np.flatnonzero(reviews_M1[:, 0].numpy() == is_review).tolist() for is_review in (0, 1))
        where_F, order = _cells(
            [live[m] for m in filling],
            confidence_ML[filling],
            asked_ML[filling],
            first_u_M[filling],
            uniform_ML[0, filling],
        )
        for m, where, places in zip(filling, where_F.tolist(), order, strict=True):
            text, start = live[m], len(live[m].prompt)
            if text.spread:
                text.decide(WHERE, 0, where, self._version, seen=seen[m], counts=bool(asked_ML[m].sum() > 1))
            for place in places:
                text.decide(
                    place - start, int(token_ML[m, place]), float(logprob_ML[m, place]), self._version, seen=seen[m]
                )
        review_R, again = _remasked(
            [live[m] for m in reading], confidence_ML[reading], asked_ML[reading], uniform_ML[0, reading]
        )
        for m, review, places in zip(reading, review_R.tolist(), again, strict=True):
            text, start = live[m], len(live[m].prompt)
            text.decide(REVIEW, 0, review, self._version, seen=seen[m], counts=bool(text.spread))
            for place in places:
                new, logprob = int(token_ML[m, place]), float(logprob_ML[m, place])
                if keeps_M[m]:
                    new, logprob = self._policy.mask, 0.0
                text.decide(place - start, new, logprob, self._version, seen=seen[m], counts=text.sampling.in_place)
        for text in live:
            text.passes += 1

    def _read(
        self,
        text_ML: Tensor,
        width_M: Tensor,
        asked_ML: Tensor,
        reviews_M: Tensor,
        keeps_M: Tensor,
        uniform_ML: Tensor,
        temperature_M: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The token of each cell asked for (its own where the row ``keeps`` it), its log-probability, and the cell's confidence.
        Logits stay where the network is."""
        token_ML, logprob_ML = torch.zeros_like(text_ML), torch.zeros_like(text_ML, dtype=torch.float32)
        confidence_ML = torch.zeros_like(logprob_ML)
        for row_K, place_K, logits_KV in self._policy.read(text_ML, width_M, asked_ML):
            at, temperature_K, reviews_K = (row_K, place_K), temperature_M[row_K], reviews_M[row_K]
            own_K = text_ML[at]
            token_ML[at] = drawn_K = own_K.where(keeps_M[row_K], _drawn(logits_KV, uniform_ML[at], temperature_K))
            for temperature in temperature_K.unique().tolist():  # as the trainer evaluates it: at one temperature
                these_K = temperature_K == temperature
                drawn, own, reviews = drawn_K[these_K], own_K[these_K], reviews_K[these_K]
                found = told(logits_KV[these_K], drawn, own, reviews, temperature or 1.0, False)
                logprob_ML[row_K[these_K], place_K[these_K]] = found[0]
                confidence_ML[row_K[these_K], place_K[these_K]] = found[1]
        return token_ML.cpu(), logprob_ML.cpu(), confidence_ML.cpu()

    def saved(self, live: LiveText) -> dict[str, Any]:
        lists = {name: list(value) for name, value in vars(live).items() if isinstance(value, list)}
        return {"request": live.request, "passes": live.passes, **lists}

    def restored(self, saved: Mapping[str, Any]) -> LiveText:
        lists = {name: list(value) for name, value in saved.items() if isinstance(value, list)}
        request = saved["request"]
        return LiveText(
            request=request,
            sampling=_of_masked(request.sampling),
            policy=self._policy,
            passes=saved["passes"],
            **lists,
        )


def _of_masked(sampling: AbstractSampling) -> MaskedSampling:
    if not isinstance(sampling, MaskedSampling):
        raise ValueError(f"{sampling} does not say how masked text is filled in: it needs sampling=MaskedSampling(...)")
    return sampling


def _drawn(logits_KV: Tensor, uniform_K: Tensor, temperature_K: Tensor) -> Tensor:
    """A token of each row by inverse CDF, the likeliest at temperature 0."""
    warm_K1 = temperature_K.where(temperature_K > 0, 1)[:, None]
    mass_KV = (logits_KV / warm_K1).softmax(-1).cumsum(-1, dtype=torch.float64)
    # 1 - u lies in (0, 1], so that a token of probability 0 is never drawn.
    drawn_K = torch.searchsorted(mass_KV, ((1 - uniform_K) * mass_KV[:, -1])[:, None])[:, 0]
    return drawn_K.where(temperature_K > 0, logits_KV.argmax(-1))


def _cells(
    live: Sequence[LiveText], confidence_ML: Tensor, masked_ML: Tensor, first_u_M: Tensor, gate_u_ML: Tensor
) -> tuple[Tensor, list[list[int]]]:
    """(log-probability of each text's choice of cells, the cells that it commits: the first, then the others from left to right)."""
    threshold_M = torch.tensor([text.sampling.threshold for text in live])
    spread_M = torch.tensor([text.spread for text in live])
    drawn_M = spread_M > 0
    first_ML, gate_ML = choice(confidence_ML, masked_ML, threshold_M, spread_M.where(drawn_M, 1))
    mass_ML = first_ML.exp().cumsum(-1)
    first_M = torch.searchsorted(mass_ML, (1 - first_u_M) * mass_ML[:, -1:])[:, 0]
    first_M = first_M.where(drawn_M, confidence_ML.masked_fill(~masked_ML, -1).argmax(-1))
    open_ML = torch.where(drawn_M[:, None], gate_u_ML < gate_ML.sigmoid(), confidence_ML > threshold_M[:, None])
    committed_ML = (open_ML & masked_ML).scatter(1, first_M[:, None], True)
    where_M = chosen(first_ML, gate_ML, masked_ML, first_M, committed_ML)
    firsts = first_M.tolist()
    others = [np.flatnonzero(row).tolist() for row in committed_ML.scatter(1, first_M[:, None], False).numpy()]
    return where_M, [[first, *rest] for first, rest in zip(firsts, others, strict=True)]


def _remasked(
    live: Sequence[LiveText], own_ML: Tensor, reviewed_ML: Tensor, gate_u_ML: Tensor
) -> tuple[Tensor, list[list[int]]]:
    """(log-probability of what each review masks, and the cells that it masks): 0 where it is not drawn."""
    keep_M = torch.tensor([text.sampling.keep for text in live])
    spread_M = torch.tensor([text.spread for text in live])
    drawn_M = spread_M > 0
    doubt_ML = doubt(own_ML, keep_M, spread_M.where(drawn_M, 1))
    open_ML = torch.where(drawn_M[:, None], gate_u_ML < doubt_ML.sigmoid(), doubt_ML > 0) & reviewed_ML
    review_M = reviewed(doubt_ML, reviewed_ML, open_ML).where(drawn_M, 0)
    return review_M, [np.flatnonzero(row).tolist() for row in open_ML.numpy()]


@dataclass(frozen=True, kw_only=True)
class Unmasking(AbstractEngineSpec):
    """Fills in ``slots`` masked texts in parallel, at any mix of states and widths, in ``precision``: float32, bfloat16, or with int8
    weights.

    Each rollout has its own random numbers, so it does not depend on its neighbours. New weights apply from the next forward pass on,
    also to texts in progress; each decision records the version that made it.
    """

    slots: int = 64
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.precision not in TOLERANCE:
            raise ValueError(f"engine.precision is {self.precision}; choose among {', '.join(TOLERANCE)}")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        sampling, coarse = whole.run.sampling, self.precision != "float32"
        if isinstance(sampling, MaskedSampling) and sampling.reviews and sampling.spread and coarse:
            yield Refusal(
                f"a review divides probabilities by sampling.spread, and what {self.precision} rounds of them is more than the "
                "proof of delivery allows: set engine.precision=float32"
            )

    def start(self, policy: AbstractPolicy) -> UnmaskingEngine:
        if not isinstance(policy, MaskedPolicy):
            raise ValueError(
                f"Unmasking samples masked language models, not {type(policy).__name__}: policy='MaskedLM()'"
            )
        return UnmaskingEngine(policy, self)
