"""Masked text: the record of which cells were committed to which tokens in each forward pass, and how that is sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gimbal.policies.base import Family
from gimbal.records import AbstractDecisions, AbstractSampling

WHERE = -1  # in the place of a cell: the decision chose which cells to commit
REVIEW = -2  # and here, which cells of a full text to mask again
GIVEN = -1  # the pass of a cell that the task gave: before all passes
MOST_REVIEWS = 64


@dataclass(frozen=True, kw_only=True)
class States:
    """The M states from which forward passes of N rows start: the prompt, and the cells that the pass sees, padded on the right."""

    text_ML: Int[Tensor, "M L"]
    width_M: Int[Tensor, " M"]
    masked_ML: Bool[Tensor, "M L"]  # cells that may be committed
    reviewed_ML: Bool[Tensor, "M L"]  # cells that may be masked again: all of a full text


@dataclass(frozen=True, kw_only=True)
class Commits(AbstractDecisions):
    """N rows of S decisions, in the order of their forward passes: decision s writes token ``token_NS`` into cell ``place_NS``, or
    (WHERE) has chosen which cells are committed in this pass; the cell that was drawn first then follows it. REVIEW has read a full
    text and chosen which cells are masked again, or written anew: each of them follows it, with the mask or a token as its token.

    Cells that the task gave come first, with GIVEN for their pass: nobody decided them, so they have no log-probability.

    A state is the prompt and the first ``seen_NS`` cells, masked where no earlier pass wrote. All states follow from what was written,
    so each decision can be evaluated at the very state in which it was made. Rows are padded on the right.
    """

    prompt_NP: Int[Tensor, "N P"]
    prompt_N: Int[Tensor, " N"]  # its length
    place_NS: Int[Tensor, "N S"]
    token_NS: Int[Tensor, "N S"]
    pass_NS: Int[Tensor, "N S"]
    seen_NS: Int[Tensor, "N S"]  # cells that this pass sees
    length_N: Int[Tensor, " N"]
    threshold_N: Float[Tensor, " N"]  # how the cells of a pass were chosen: see MaskedSampling
    spread_N: Float[Tensor, " N"]
    keep_N: Float[Tensor, " N"]
    mask: int  # the id of the mask token
    end: int = -1  # the id of the end-of-text token, if there is one

    @property
    def shape(self) -> tuple[int, int]:
        n, s = self.place_NS.shape
        return n, s

    @property
    def there_NS(self) -> Bool[Tensor, "N S"]:
        return torch.arange(self.shape[1], device=self.length_N.device) < self.length_N[:, None]

    @property
    def begins_NS(self) -> Bool[Tensor, "N S"]:
        """The first decision of each pass."""
        before_NS = nn.functional.pad(self.pass_NS[:, :-1], (1, 0), value=GIVEN)
        return self.there_NS & (self.pass_NS != before_NS)

    @property
    def cell_NS(self) -> Bool[Tensor, "N S"]:
        """Decisions that wrote a cell, or masked it again."""
        return self.there_NS & (self.place_NS >= 0) & (self.pass_NS != GIVEN)

    @property
    def given_NS(self) -> Bool[Tensor, "N S"]:
        """Cells that the task gave."""
        return self.there_NS & (self.pass_NS == GIVEN)

    @property
    def wrote_NS(self) -> Bool[Tensor, "N S"]:
        """Decisions that wrote a token."""
        return self.cell_NS & (self.token_NS != self.mask)

    @property
    def remasked_N(self) -> Int[Tensor, " N"]:
        """Cells that reviews masked again or wrote anew, each as often as they did."""
        at_S = torch.arange(self.shape[1], device=self.length_N.device)
        begun_NS = (at_S * self.begins_NS).cummax(-1).values
        return (self.cell_NS & (self.place_NS.gather(1, begun_NS) == REVIEW)).sum(-1)

    @property
    def passes_N(self) -> Int[Tensor, " N"]:
        """Forward passes of each row."""
        return self.begins_NS.sum(-1)

    @property
    def tokens_N(self) -> Int[Tensor, " N"]:
        """Tokens of each text: cells that were written, and not given, up to the first with an end-of-text token."""
        whole_N = torch.arange(self.shape[0], device=self.length_N.device)
        cell_NT = self._cells(whole_N, self.pass_NS.amax(-1) + 1, self.token_NS)
        before_NT = (cell_NT == self.end).cumsum(-1) - (cell_NT == self.end).long() == 0
        return ((cell_NT != self.mask) & before_NT & ~self._given_NT(cell_NT.shape[1])).sum(-1)

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        """Positions of all states, each of which the network reads once."""
        return ((self.prompt_N[:, None] + self.seen_NS) * self.begins_NS).sum(-1)

    @property
    def label_NS(self) -> Int[Tensor, "N S"]:
        return self.token_NS

    @property
    def states(self) -> States:
        return self.after(self.token_NS)

    def after(self, last_NS: Int[Tensor, "N S"]) -> States:
        """The states, each with these tokens in place of those that the pass before it wrote."""
        row_M, first_M = self.begins_NS.nonzero(as_tuple=True)  # each row, and the decision that begins the pass
        pass_M, seen_M, prompt_M = self.pass_NS[row_M, first_M], self.seen_NS[row_M, first_M], self.prompt_N[row_M]
        cell_MT = self._cells(row_M, pass_M, last_NS)
        width_M = prompt_M + seen_M
        at_L = torch.arange(int(width_M.max()), device=row_M.device)
        inner_ML = (at_L - prompt_M[:, None]).clamp(0, cell_MT.shape[1] - 1)
        cell_ML = cell_MT.gather(1, inner_ML)
        asked_ML = self.prompt_NP[row_M].gather(1, at_L.clamp(max=self.prompt_NP.shape[1] - 1).expand(len(row_M), -1))
        inside_ML = at_L >= prompt_M[:, None]
        text_ML = cell_ML.where(inside_ML, asked_ML)
        seen_ML = inside_ML & (at_L < width_M[:, None])
        given_ML = self._given_NT(cell_MT.shape[1])[row_M].gather(1, inner_ML)
        return States(
            text_ML=text_ML,
            width_M=width_M,
            masked_ML=seen_ML & (text_ML == self.mask),
            reviewed_ML=seen_ML & (self.place_NS[row_M, first_M] == REVIEW)[:, None] & ~given_ML,
        )

    @property
    def last_N(self) -> Int[Tensor, " N"]:
        """Cells that the last pass of each wrote: of a picture in scales, the finest."""
        return (self.wrote_NS & (self.pass_NS == self.pass_NS.amax(-1, keepdim=True))).sum(-1)

    def _given_NT(self, width: int) -> Bool[Tensor, "N T"]:
        """Which of the first cells the task gave."""
        row_D, step_D = self.given_NS.nonzero(as_tuple=True)
        given_NT = torch.zeros(self.shape[0], width, dtype=torch.bool, device=self.length_N.device)
        given_NT[row_D, self.place_NS[row_D, step_D]] = True
        return given_NT

    def _cells(
        self, row_M: Int[Tensor, " M"], pass_M: Int[Tensor, " M"], last_NS: Int[Tensor, "N S"]
    ) -> Int[Tensor, "M T"]:
        """The cells of these rows before these passes, with ``last_NS`` for what the pass right before wrote."""
        cell_MT = torch.full((len(row_M), int(self.seen_NS.max())), self.mask, device=row_M.device)
        holds_NS = self.cell_NS | self.given_NS
        for s in range(self.shape[1]):
            known_M = holds_NS[row_M, s] & (self.pass_NS[row_M, s] < pass_M)
            place_M1 = self.place_NS[row_M, s].clamp(min=0)[:, None]
            newest_M = self.pass_NS[row_M, s] == pass_M - 1
            token_M1 = last_NS[row_M, s].where(newest_M, self.token_NS[row_M, s])[:, None]
            new_M1 = token_M1.where(known_M[:, None], cell_MT.gather(1, place_M1))
            cell_MT.scatter_(1, place_M1, new_M1)
        return cell_MT

    @classmethod
    def written(
        cls, prompt: Sequence[int], tokens: Sequence[int], sampling: MaskedSampling, mask: int, end: int = -1
    ) -> Commits:
        """The row that would be recorded if these tokens were drawn: each block in one pass, which sees all before it (teacher
        forcing), no more of them than ``max_length``. ValueError where the sampling would not write whole blocks: a given text does not
        say which cells came first."""
        if sampling.threshold > 0 or sampling.spread or sampling.reviews or sampling.scaffold:
            raise ValueError(
                "a written text does not say which cells a pass commits, unless it commits whole blocks: set sampling.threshold=0 "
                'sampling.spread=0 sampling.reviews=0 sampling.scaffold=""'
            )
        if len(tokens) < sampling.max_length:
            raise ValueError(
                f"a written text has {len(tokens)} tokens, and masked text one for each of sampling.max_length={sampling.max_length} "
                "cells: lower it, or give longer texts"
            )
        tokens = tokens[: sampling.max_length]
        seen, number = list[int](), list[int]()
        while len(seen) < len(tokens):
            end, begun = sampling.seen(len(seen)), len(seen)
            number += [number[-1] + 1 if number else 0] * (end - begun)
            seen += [end] * (end - begun)
        return cls(
            prompt_NP=torch.tensor([list(prompt)]),
            prompt_N=torch.tensor([len(prompt)]),
            place_NS=torch.arange(len(tokens))[None],
            token_NS=torch.tensor([list(tokens)]),
            pass_NS=torch.tensor([number]),
            seen_NS=torch.tensor([seen]),
            length_N=torch.tensor([len(tokens)]),
            threshold_N=torch.tensor([sampling.threshold]),
            spread_N=torch.tensor([sampling.spread]),
            keep_N=torch.tensor([sampling.keep]),
            mask=mask,
            end=end,
        )

    def select(self, rows: Int[Tensor, " M"]) -> Commits:
        s, p = int(self.length_N[rows].max()), int(self.prompt_N[rows].max())
        columns = {name: value[rows, :s] for name, value in self._of("_NS").items()}
        flat = {name: value[rows] for name, value in self._of("_N").items()}
        return self._with(prompt_NP=self.prompt_NP[rows, :p], **columns, **flat)

    @classmethod
    def stack(cls, items: Sequence[Commits]) -> Commits:  # pyrefly: ignore[bad-override]; a batch is of one kind
        def joined(name: str, padded: bool) -> Tensor:
            values = [vars(item)[name] for item in items]
            longest = max(value.shape[1] for value in values) if padded else 0
            return torch.cat([nn.functional.pad(v, (0, longest - v.shape[1])) if padded else v for v in values])

        first = items[0]
        columns = {name: joined(name, True) for name in ("prompt_NP", *first._of("_NS"))}
        return first._with(**columns, **{name: joined(name, False) for name in first._of("_N")})

    def to(self, device: torch.device) -> Commits:
        return self._with(**{name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)})

    def _of(self, shape: str) -> Mapping[str, Tensor]:
        return {name: value for name, value in vars(self).items() if name.endswith(shape)}

    def _with(self, **tensors: Tensor) -> Commits:
        return Commits(mask=self.mask, end=self.end, **tensors)


@dataclass(frozen=True, kw_only=True)
class MaskedSampling(AbstractSampling):
    """How masked text is filled in: ``max_length`` cells, in blocks of ``block`` from left to right (0: all are one block).

    In a forward pass the network sees the prompt and the cells up to the end of the current block. Each masked cell has a confidence:
    the probability of its likeliest token, at temperature 1. The pass commits some cells, and draws the token of each from the
    network's distribution at that cell, softmax(logits / temperature) over all tokens but the mask.

    ``blocks`` gives blocks of several sizes instead, such as (4, 16, 64). With ``threshold`` 0 each is written in one pass, given all
    before it: next-scale prediction (VAR, arXiv:2404.02905), where they are one picture in 2 x 2, 4 x 4 and 8 x 8 pixels.

    - ``spread`` = 0: the most confident cell is committed, and with it all whose confidence is above ``threshold``. This choice is
      certain given the state: it has no log-probability, and no gradient.
    - ``spread`` > 0: the choice is drawn, and is a decision of its own: one cell by softmax(confidence / spread), and each other with
      probability sigmoid((confidence - threshold) / spread). Temperature 0 chooses as if ``spread`` were 0.

    ``threshold`` 1 commits one cell a pass, 0 without ``spread`` the whole block at once; ``block`` 1 fills from left to right. A text
    ends with the block that has an end-of-text token, or with its last cell.

    A full text is read up to ``reviews`` times more. Such a pass masks cells again, by the probability that the network, which sees
    the whole text, gives to each cell's own token: those below ``keep`` or, with ``spread`` > 0, each with probability
    sigmoid((keep - probability) / spread), as one decision. They are then filled in as before, at the confidences that the rest of
    the text gives them. A review that masks nothing is the last. ``reviews`` 0 writes each cell once.

    With ``in_place`` a review masks nothing: each cell that it would mask gets a token at once, drawn from the network's distribution
    at that cell, given the whole text as it was (the token-to-token edits of ReflectDrive-2, arXiv:2605.04647). An edit then costs one
    pass.

    ``scaffold`` names a column of the tasks with a text of ``max_length`` tokens, in which the tokenizer's mask stands for the cells to
    write. The others are there from the start, and stay: no pass is spent on them, and they have no log-probability (the frozen
    structure of Fast-dDrive, arXiv:2605.23163). "" gives none.
    """

    max_length: int = 64
    block: int = 0
    threshold: float = 0.9
    spread: float = 0.0
    reviews: int = 0
    keep: float = 0.5
    in_place: bool = False
    blocks: tuple[int, ...] = ()
    scaffold: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.block <= self.max_length:
            raise ValueError(
                f"sampling.block is {self.block}; it must be a number of cells up to sampling.max_length={self.max_length}, or 0 "
                "for all at once"
            )
        if self.blocks and (self.block or min(self.blocks) < 1 or sum(self.blocks) < self.max_length):
            raise ValueError(
                f"sampling.blocks is {self.blocks}, whose sum must reach sampling.max_length={self.max_length}, each of them at least "
                f"1, with sampling.block=0 (it is {self.block})"
            )
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"sampling.threshold is {self.threshold}; it is a probability, from 0 to 1")
        if not 0 <= self.keep <= 1:
            raise ValueError(f"sampling.keep is {self.keep}; it is a probability, from 0 to 1")
        if not 0 <= self.reviews <= MOST_REVIEWS:
            raise ValueError(
                f"sampling.reviews is {self.reviews}; it must be from 0 (no text is read again) to {MOST_REVIEWS}"
            )
        if self.reviews and (self.block or self.blocks):
            parts = f"blocks={self.blocks}" if self.blocks else f"block={self.block}"
            raise ValueError(
                f"sampling.reviews={self.reviews} reads whole texts again, and sampling.{parts} fills them in by parts: leave one of "
                "them out"
            )
        if self.in_place and not self.reviews:
            raise ValueError(
                "sampling.in_place=true is about reviews, and sampling.reviews is 0: set sampling.reviews=1, or leave it out"
            )
        if not 0 <= self.spread <= 100:
            raise ValueError(
                f"sampling.spread is {self.spread}; it must be 0 (cells are not drawn), or above and at most 100"
            )

    @property
    def full(self) -> bool:
        return True

    @property
    def most(self) -> int:
        """Decisions of a rollout: its tokens, and with ``spread`` as many choices of cells, one for each pass; and each review may mask
        all of them again."""
        once = self.max_length * (2 if self.spread else 1)
        return once + self.reviews * (1 + self.max_length + (0 if self.in_place else once))

    def seen(self, done: int) -> int:
        """The cells that a pass sees where the first ``done`` are filled: up to the end of the next block."""
        if self.blocks:
            return min(self.max_length, next((end for end in accumulate(self.blocks) if end > done), self.max_length))
        block = self.block or self.max_length
        return min(self.max_length, (done // block + 1) * block)


FILLED = Family(unit="decisions", sampling=MaskedSampling, judged=True, earns="reward")


def choice(
    confidence_MT: Float[Tensor, "M T"],
    masked_MT: Bool[Tensor, "M T"],
    threshold_M: Float[Tensor, " M"],
    spread_M: Float[Tensor, " M"],
) -> tuple[Float[Tensor, "M T"], Float[Tensor, "M T"]]:
    """(log-probability that the first cell is this one, logit that a cell is committed besides), in double precision: so that sums over
    cells do not depend on how wide the batch is. ``spread_M`` > 0."""
    confidence_MT = confidence_MT.double()
    first_MT = (confidence_MT / spread_M[:, None]).masked_fill(~masked_MT, -torch.inf).log_softmax(-1)
    return first_MT, (confidence_MT - threshold_M[:, None]) / spread_M[:, None]


def chosen(
    first_MT: Float[Tensor, "M T"],
    gate_MT: Float[Tensor, "M T"],
    masked_MT: Bool[Tensor, "M T"],
    first_M: Int[Tensor, " M"],
    committed_MT: Bool[Tensor, "M T"],
) -> Float[Tensor, " M"]:
    """Log-probability of committing these cells, ``first_M`` among them as the first, by what ``choice`` found."""
    sign_MT = torch.where(committed_MT, 1.0, -1.0)
    others_MT = masked_MT.scatter(1, first_M[:, None], False)
    gates_M = nn.functional.logsigmoid(sign_MT * gate_MT).where(others_MT, 0).sum(-1)
    return (first_MT.gather(1, first_M[:, None])[:, 0] + gates_M).float()


def reviewed(
    doubt_MT: Float[Tensor, "M T"],
    seen_MT: Bool[Tensor, "M T"],
    remasked_MT: Bool[Tensor, "M T"],
) -> Float[Tensor, " M"]:
    """Log-probability of masking these cells again, of those that a review saw; ``doubt_MT`` are the logits that ``doubt`` found."""
    sign_MT = torch.where(remasked_MT, 1.0, -1.0)
    return nn.functional.logsigmoid(sign_MT * doubt_MT).where(seen_MT, 0).sum(-1).float()


def doubt(
    own_MT: Float[Tensor, "M T"], keep_M: Float[Tensor, " M"], spread_M: Float[Tensor, " M"]
) -> Float[Tensor, "M T"]:
    """Logit that a review masks a cell whose own token has this probability, in double precision (as ``choice``)."""
    return (keep_M[:, None] - own_MT.double()) / spread_M[:, None]
