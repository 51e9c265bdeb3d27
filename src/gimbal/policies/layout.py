"""How rows of tokens are laid out for one forward pass: each by itself, or as trees, in which a common beginning stands once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gimbal.policies.pieces import Piece, register, table

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers, as transformers calls them
# Positions of a sequence behind a mask: beyond, its quadratic attention costs more than the prefixes it saves.
LONGEST = 1024
UNLIMITED = 1 << 62
WORTH = 0.9  # of the tokens of its rows a tree may have at most; for less gain rows stay by themselves


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How rows of a model may share their prefixes: with attention in pieces where none is longer than ``deepest``, else with a
    mask."""

    deepest: int = 0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Inputs of the model, and for each of the K decisions the position of the hidden state that predicts it.

    Tokens of a tree are in depth-first order. Column q sees column k iff k <= q < end[k], where the tokens that follow k end.
    """

    ids_RL: Int[Tensor, "R L"]
    position_RL: Int[Tensor, "R L"] | None = None  # None: 0, 1, 2, ...
    end_RL: Int[Tensor, "R L"] | None = None  # None: causal
    pieces: tuple[Piece, ...] = ()  # of the one sequence; (): behind a mask
    row_K: Int[Tensor, " K"]
    column_K: Int[Tensor, " K"]
    prompt_R: tuple[int, ...]  # the rows whose images are read, in this order

    def distinct(
        self, id_K: Int[Tensor, " K"], vocabulary: int
    ) -> tuple[Int[Tensor, " U"], Int[Tensor, " U"], Int[Tensor, " K"] | None]:
        """Each pair of a place and the token drawn there once, and which of them the K decisions are; None: each its own."""
        place_K = self.row_K * self.ids_RL.shape[1] + self.column_K
        if self.end_RL is None:
            return place_K, id_K, None
        pair_U, of_K = torch.unique(place_K * vocabulary + id_K, return_inverse=True)
        if len(pair_U) == len(id_K):
            return place_K, id_K, None
        return pair_U // vocabulary, pair_U % vocabulary, of_K

    def inputs(self, model: Any) -> dict[str, Any]:
        """Keywords of the forward pass of a transformers model."""
        if self.end_RL is None:
            # Rows are padded on the right and padding is never read, so the causal mask alone suffices.
            return {"input_ids": self.ids_RL}
        assert self.position_RL is not None, "tokens of a tree say how deep they are"
        placed = {"input_ids": self.ids_RL, "position_ids": self.position_RL}
        if self.pieces:
            register()
            return {**placed, "attention_mask": table(self.pieces, self.ids_RL.device)}
        column_L = torch.arange(self.ids_RL.shape[1], device=self.ids_RL.device)
        mask_RLL = (column_L <= column_L[:, None]) & (column_L[:, None] < self.end_RL[:, None])
        return {**placed, "attention_mask": attention(model, mask_RLL, self.position_RL, self.position_RL)}


def kinds_of(model: Any) -> Sequence[str]:
    """Of its layers, where its config says."""
    return vars(model.config.get_text_config()).get("layer_types") or ()


def window_of(model: Any) -> int | None:
    """How far layers see that do not see everything, where there are any."""
    kinds = kinds_of(model)
    return None if kinds and SLIDING not in kinds else vars(model.config.get_text_config()).get("sliding_window")


def attention(
    model: Any, mask_RQK: Bool[Tensor, "R Q K"], query_RQ: Int[Tensor, "R Q"], key_RK: Int[Tensor, "#R K"]
) -> Any:
    """The attention mask of a transformers model in the form that it takes: [R, 1, Q, K], or one for each kind of its layers.

    ``mask_RQK`` is where queries may look; the two others are their positions and those of the keys. A model that is given such a mask
    applies no window of its own: its layers would see further than they do in ``generate``, in trainer and sampler alike.
    """
    dtype, kinds, window = model.dtype, kinds_of(model), window_of(model)
    if window is None or mask_RQK.shape[-1] <= window:
        return additive(mask_RQK, dtype)[:, None]
    near_RQK = query_RQ[:, :, None] - key_RK[:, None] < window
    sliding = additive(mask_RQK & near_RQK, dtype)[:, None]
    return {FULL: additive(mask_RQK, dtype)[:, None], SLIDING: sliding} if kinds else sliding


def additive(mask: Bool[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """0 where attention may look and -inf elsewhere, to be added to its scores.

    torch's attention makes this of a mask again in every layer, forward and backward, and the eager one of transformers takes no other.
    """
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def apart(ids_NL: Int[Tensor, "N L"], first_N: Int[Tensor, " N"], length_N: Int[Tensor, " N"]) -> Layout:
    """Every row by itself. ``first_N`` is where its decisions begin."""
    column_L = torch.arange(ids_NL.shape[1], device=ids_NL.device)
    row_K, at_K = ((column_L >= first_N[:, None]) & (column_L < length_N[:, None])).nonzero(as_tuple=True)
    prompt_R = tuple(range(len(ids_NL)))
    return Layout(ids_RL=ids_NL, row_K=row_K, column_K=at_K - 1, prompt_R=prompt_R)


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """How rows of one pass share their prefixes."""

    paths: Sequence[list[int]]  # the rows; their last decisions predict nothing
    forests: Sequence[list[int]]  # the rows of each sequence, () where each is by itself
    sizes: Sequence[int]  # of the forests, in tokens
    joined: bool  # the forests are one sequence, with attention in pieces

    @property
    def extent(self) -> tuple[int, int]:
        """Of the pass: sequences, and the positions of each."""
        if self.joined:
            return sum(self.sizes), 1  # which is padded to nothing, however many there are
        if self.forests:
            return len(self.forests), max(self.sizes)
        return len(self.paths), max(len(path) for path in self.paths) + 1


def planned(
    ids_NL: Int[Tensor, "N L"],
    first_N: Int[Tensor, " N"],
    length_N: Int[Tensor, " N"],
    images_N: Sequence[tuple[str, ...]],
    sharing: Sharing | None,
) -> Arrangement:
    """Rows share where the model allows it and it pays off. The same words about two images are two prompts."""
    first, length = first_N.tolist(), length_N.tolist()
    paths = [row[: max(first[n], length[n] - 1)] for n, row in enumerate(ids_NL.tolist())]
    apart = Arrangement(paths=paths, forests=(), sizes=(), joined=False)
    if sharing is None:
        return apart
    joined = ids_NL.device.type == "cpu" and max(map(len, paths)) <= sharing.deepest
    members: dict[Any, list[int]] = {}
    for n, path in enumerate(paths):
        images = images_N[n] if images_N else ()
        members.setdefault((images, tuple(path[: first[n]])) if images or not joined else (), []).append(n)
    forests = list(members.values())
    sizes = [_distinct(paths, rows) for rows in forests]
    if sum(sizes) > WORTH * sum(map(len, paths)) or not (joined or max(sizes) <= LONGEST):
        return apart
    return Arrangement(paths=paths, forests=forests, sizes=sizes, joined=joined)


def laid(
    ids_NL: Int[Tensor, "N L"],
    first_N: Int[Tensor, " N"],
    length_N: Int[Tensor, " N"],
    images_N: Sequence[tuple[str, ...]],
    sharing: Sharing | None,
) -> Layout:
    """The layout of what is ``planned`` for these rows."""
    plan = planned(ids_NL, first_N, length_N, images_N, sharing)
    if not plan.forests:
        return apart(ids_NL, first_N, length_N)
    device, first, length = ids_NL.device, first_N.tolist(), length_N.tolist()
    runs: list[list[range]] = [[] for _ in plan.paths]  # columns of each row's tokens
    written: list[_Sequence] = []
    row_N = [0] * len(runs)
    for rows in plan.forests:
        if not (plan.joined and written):
            written.append(_Sequence())
        written[-1].grow(plan.paths, rows, runs)
        for n in rows:
            row_N[n] = len(written) - 1
    column = [[column for run in runs[n] for column in run][first[n] - 1 : length[n] - 1] for n in range(len(runs))]

    def padded(columns: Iterable[Sequence[int]], value: int = 0) -> Int[Tensor, "R L"]:
        return pad_sequence([torch.tensor(x, device=device) for x in columns], batch_first=True, padding_value=value)

    ends = [[piece.end for piece in sequence.pieces for _ in range(piece.start, piece.stop)] for sequence in written]
    return Layout(
        ids_RL=padded(sequence.ids for sequence in written),
        position_RL=padded(sequence.position for sequence in written),
        # Padding stands behind all and sees itself: no row of a softmax may be empty.
        end_RL=padded(ends, LONGEST + 1),
        pieces=tuple(written[0].pieces) if plan.joined else (),
        row_K=torch.tensor([row_N[n] for n in range(len(runs)) for _ in column[n]], dtype=torch.long, device=device),
        column_K=torch.tensor([x for own in column for x in own], dtype=torch.long, device=device),
        prompt_R=tuple(rows[0] for rows in plan.forests),
    )


def _distinct(paths: Sequence[list[int]], rows: Sequence[int]) -> int:
    """Tokens of their tree."""
    ordered = sorted(paths[row] for row in rows)
    return sum(len(path) - _common(before, path, 0) for before, path in zip([[], *ordered[:-1]], ordered, strict=True))


def _common(one: Sequence[int], other: Sequence[int], at: int) -> int:
    """How far they agree, who do so up to ``at``."""
    shorter = min(len(one), len(other))
    if one[at:shorter] == other[at:shorter]:
        return shorter
    return next(place for place in range(at, shorter) if one[place] != other[place])


@dataclass(kw_only=True)
class _Sequence:
    """Trees one after the other, in their written order."""

    ids: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def grow(self, paths: Sequence[list[int]], members: Sequence[int], runs: Sequence[list[range]]) -> None:
        """The tree of these rows, depth first; ``runs`` gets the columns of each row's tokens."""
        pending: list[tuple[list[int], int] | int] = [(rows, 0) for rows in _apart_at(paths, members, 0)]
        while pending:
            if isinstance(top := pending.pop(), int):  # all that follows on this piece has been written
                self.pieces[top] = replace(self.pieces[top], end=len(self.ids))
                continue
            rows, at = top
            start = len(self.ids)
            # They agree as far as the first and the last in their order.
            to = _common(min(paths[row] for row in rows), max(paths[row] for row in rows), at)
            self.ids += paths[rows[0]][at:to]
            self.position += range(at, to)
            for row in rows:
                runs[row].append(range(start, len(self.ids)))
            pending.append(len(self.pieces))
            self.pieces.append(Piece(start, len(self.ids), 0, at == 0))
            pending += [(branch, to) for branch in _apart_at(paths, rows, to)]


def _apart_at(paths: Sequence[list[int]], rows: Sequence[int], at: int) -> list[list[int]]:
    """Those that go on there, by how; the last to come is the first (what is pending is taken from its end)."""
    branches: dict[int, list[int]] = {}
    for row in rows:
        if len(paths[row]) > at:
            branches.setdefault(paths[row][at], []).append(row)
    return list(branches.values())[::-1]
