"""Attention of a tree of tokens, piece by piece: no mask, no padding, no unused scores.

Tokens are in depth-first order, so that a piece of the tree and everything after it are one slice of the sequence. The slice attends
only to the piece, causally; what a token gets from the pieces on its path is joined by their log-sum-exps:

    out = sum_p exp(lse_p - lse) out_p        lse = log sum_p exp(lse_p)

and the gradient of each piece is that of attention with the joined ``out`` and ``lse``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Piece:
    """Columns ``start`` to ``stop`` without a fork between them; their continuations end before ``end``."""

    start: int
    stop: int
    end: int
    root: bool  # whether nothing comes before it


def table(pieces: Sequence[Piece], device: torch.device) -> Int[Tensor, "1 1 P four"]:
    """The pieces in the shape of a mask, which every transformers model hands on to its layers as it is.

    A tensor, because blocks that are checkpointed are called again in the backward pass, when nothing else of ours is there any more.
    """
    return torch.tensor([[[[p.start, p.stop, p.end, p.root] for p in pieces]]], device=device)


@cache
def register() -> None:
    """Let transformers' "sdpa" attention take a table of pieces for its mask; with any other mask it is what it was."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register("sdpa", _taking_pieces(AttentionInterface._global_mapping["sdpa"]))


def _taking_pieces(plain: Callable[..., Any]) -> Callable[..., Any]:
    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        if not isinstance(attention_mask, Tensor) or attention_mask.dtype != torch.long:
            return plain(module, query, key, value, attention_mask, *args, **kwargs)
        strange = [name for name in ("position_bias", "s_aux", "softcap") if kwargs.get(name) is not None]
        if args or strange:
            raise ValueError(f"attention in pieces does not support {', '.join(strange) or 'unnamed arguments'}")
        out = in_pieces(query, key, value, attention_mask, kwargs.get("scaling"))
        return out.transpose(1, 2).contiguous(), None

    return attention


def in_pieces(
    query: Float[Tensor, "1 H T D"],
    key: Float[Tensor, "1 G T D"],
    value: Float[Tensor, "1 G T D"],
    pieces: Int[Tensor, "1 1 P four"],
    scale: float | None,
) -> Float[Tensor, "1 H T D"]:
    """Each query over the keys of its own path."""
    if torch.is_autocast_enabled(query.device.type):  # as torch's own attention, which autocast knows by name
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = (x.to(dtype) for x in (query, key, value))
    repeats = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(repeats, 1) if repeats > 1 else x for x in (key, value))
    return _InPieces.apply(query, key, value, pieces, scale)  # type: ignore[return-value]


class _InPieces(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, pieces: Tensor, scale: float | None
    ) -> Tensor:
        rows: list[list[int]] = pieces[0, 0].tolist()
        joined = torch.promote_types(query.dtype, torch.float32)  # halves would be rounded once a piece
        out_HTD, lse_HT = (torch.empty(shape, dtype=joined) for shape in (query.shape, query.shape[:3]))
        for start, stop, end, root in rows:
            below, own = (..., slice(start, end), slice(None)), (..., slice(start, stop), slice(None))
            found, lse = _forward(query[below], key[own], value[own], 0.0, True, scale=scale)
            out, total = out_HTD[below], lse_HT[..., start:end]
            if root:
                out.copy_(found)
                total.copy_(lse)
                continue
            both = torch.logaddexp(total, lse)
            out.mul_((total - both).exp_()[..., None]).add_(found * (lse - both).exp_()[..., None])
            total.copy_(both)
        out_HTD = out_HTD.to(query.dtype)
        ctx.save_for_backward(query, key, value, out_HTD, lse_HT)
        ctx.rows, ctx.scale = rows, scale
        return out_HTD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        query, key, value, out_HTD, lse_HT = ctx.saved_tensors
        to_query = torch.zeros_like(query, dtype=lse_HT.dtype)
        to_key, to_value = torch.empty_like(key), torch.empty_like(value)  # each of them is in one piece
        for start, stop, end, _ in ctx.rows:
            below, own = (..., slice(start, end), slice(None)), (..., slice(start, stop), slice(None))
            lse = lse_HT[..., start:end]
            seen = (gradients[0][below], query[below], key[own], value[own], out_HTD[below], lse)
            moved, to_key[own], to_value[own] = _backward(*seen, 0.0, True, scale=ctx.scale)
            to_query[below] += moved
        return to_query.to(query.dtype), to_key, to_value, None, None
