"""How rows of tokens are laid out for one forward pass: each by itself, or the rows of one prompt behind a single copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

FULL, SLIDING = "full_attention", "sliding_attention"  # kinds of layers, as transformers calls them
LONGEST = 1024  # positions of a shared row: beyond, its quadratic attention costs more than the prompts it saves


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Inputs of the model, and for each of the K decisions the place of the hidden state that predicts it."""

    ids_RL: Int[Tensor, "R L"]
    position_RL: Int[Tensor, "R L"] | None  # None: 0, 1, 2, ...
    mask_RLL: Bool[Tensor, "R L L"] | None  # query, key; None: causal
    row_K: Int[Tensor, " K"]
    column_K: Int[Tensor, " K"]
    prompt_R: tuple[int, ...]  # the row whose prompt each sequence begins with

    def inputs(self, model: Any) -> dict[str, Any]:
        """Keywords of the forward pass of a transformers model."""
        if self.mask_RLL is None:
            # Rows are padded on the right and padding is never read, so the causal mask alone suffices.
            return {"input_ids": self.ids_RL}
        assert self.position_RL is not None, "rows behind one prompt say where they are"
        return {
            "input_ids": self.ids_RL,
            "position_ids": self.position_RL,
            "attention_mask": attention(model, self.mask_RLL, self.position_RL, self.position_RL),
        }


def attention(
    model: Any, mask_RQK: Bool[Tensor, "R Q K"], query_RQ: Int[Tensor, "R Q"], key_RK: Int[Tensor, "#R K"]
) -> Any:
    """The attention mask of a transformers model in the form that it takes: [R, 1, Q, K], or one for each kind of its layers.

    ``mask_RQK`` is where queries may look; the two others are their positions and those of the keys. A model that is given such a mask
    applies no window of its own: its layers would see further than they do in ``generate``, in trainer and sampler alike.
    """
    config, dtype = model.config.get_text_config(), model.dtype
    window = vars(config).get("sliding_window")
    kinds = vars(config).get("layer_types") or ()
    if window is None or mask_RQK.shape[-1] <= window or (kinds and SLIDING not in kinds):
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
    return Layout(ids_RL=ids_NL, position_RL=None, mask_RLL=None, row_K=row_K, column_K=at_K - 1, prompt_R=prompt_R)


def shared(
    ids_NL: Int[Tensor, "N L"],
    first_N: Int[Tensor, " N"],
    length_N: Int[Tensor, " N"],
    images_N: Sequence[tuple[str, ...]] = (),
) -> Layout | None:
    """Rows of one prompt in one sequence: the prompt once, then each row's decisions but the last, which see the prompt and themselves.

    A prompt is its tokens and ``images_N``: the same words about two images are two prompts. None where no prompt occurs twice or a
    sequence would grow beyond ``LONGEST``.
    """
    first, length, ids = first_N.tolist(), length_N.tolist(), ids_NL.tolist()
    members: dict[tuple[Any, tuple[int, ...]], list[int]] = {}
    for n, row in enumerate(ids):
        members.setdefault((images_N[n] if images_N else (), tuple(row[: first[n]])), []).append(n)
    if len(members) == len(ids):
        return None
    sequences, positions, segments = [], [], []
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(ids)  # (sequence, end of prompt, start of its own decisions)
    for r, ((_, prompt), rows) in enumerate(members.items()):
        sequence, position, segment = list(prompt), list(range(len(prompt))), [0] * len(prompt)
        for number, n in enumerate(rows, start=1):
            places[n] = (r, len(prompt), len(sequence))
            drawn = ids[n][first[n] : length[n] - 1]
            sequence += drawn
            position += range(len(prompt), len(prompt) + len(drawn))
            segment += [number] * len(drawn)
        if len(sequence) > LONGEST:
            return None
        for columns, column in ((sequences, sequence), (positions, position), (segments, segment)):
            columns.append(torch.tensor(column, device=ids_NL.device))
    segment_RL = pad_sequence(segments, batch_first=True, padding_value=-1)
    causal_LL = torch.ones(2 * segment_RL.shape[1:], dtype=torch.bool, device=ids_NL.device).tril()
    own_RLL = (segment_RL[:, :, None] == segment_RL[:, None]) | (segment_RL[:, None] == 0)
    row, column = [], []
    for n, (r, prompt_end, start) in enumerate(places):
        count = length[n] - first[n]
        row += [r] * count
        column += [prompt_end - 1, *range(start, start + count - 1)]
    return Layout(
        ids_RL=pad_sequence(sequences, batch_first=True),
        position_RL=pad_sequence(positions, batch_first=True),
        mask_RLL=own_RLL & causal_LL,
        row_K=torch.tensor(row, device=ids_NL.device),
        column_K=torch.tensor(column, device=ids_NL.device),
        prompt_R=tuple(rows[0] for rows in members.values()),
    )
