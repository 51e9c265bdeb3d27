"""Log-probabilities of tokens, and statistics of their distributions, from hidden states: never all logits of a batch at once.

Where the vocabulary is large, the table of logits [K, V] of K tokens is the largest tensor of a step: 600 kB a token in float32 for
151,936. So it is made a chunk of tokens at a time, and again in the backward pass. The gradient of the output layer is added up in one
matrix over all chunks; autograd would make another one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LEAST = 1 << 22  # logits held at once (4M floats, 16 MiB), ...
LEAST_GPU = 1 << 25  # ... on a GPU 128 MiB, because kernels that work on fewer take longer to launch than to run ...
SHARE = 8  # ... and for a large output layer this part of its size: each chunk reads and writes all of its gradient

STATISTICS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {  # of probabilities, logits and their logsumexp
    "entropy_NS": lambda p_CV, logits_CV, norm_C: norm_C - (logits_CV * p_CV).sum(-1),
    "logprob_NSV": lambda p_CV, logits_CV, norm_C: logits_CV - norm_C[:, None],
}


def held(size: int, *, gpu: bool) -> int:
    """Logits held at once of an output layer with so many weights."""
    return max(LEAST_GPU if gpu else LEAST, size // SHARE)


def rows(weight: Float[Tensor, "V H"]) -> int:
    """Tokens of a chunk."""
    return max(1, held(weight.numel(), gpu=weight.device.type != "cpu") // weight.shape[0])


def picked(
    head: nn.Module, hidden_KH: Tensor, id_K: Tensor, temperature: float, statistics: Sequence[str]
) -> tuple[Tensor, ...]:
    """Log-probability and statistics of each token under softmax(head(hidden) / temperature), in float32."""
    weight: Any = head.weight
    count = rows(weight)
    if len(id_K) <= count:
        return _of_logits(head(hidden_KH).float() / temperature, id_K, statistics)
    # An adapter, a bias or another layer goes through autograd, which takes one more matrix of the layer's size a chunk.
    if type(head) is nn.Linear and head.bias is None and not head._forward_hooks:
        dtype = torch.get_autocast_dtype(weight.device.type) if _autocast(weight) else weight.dtype
        return _Chunked.apply(hidden_KH, weight, id_K, temperature, tuple(statistics), count, dtype)  # type: ignore[return-value]

    def one(hidden_CH: Tensor, id_C: Tensor) -> tuple[Tensor, ...]:
        return _of_logits(head(hidden_CH).float() / temperature, id_C, statistics)

    pieces = [
        checkpoint(one, h, i, use_reentrant=False)
        for h, i in zip(hidden_KH.split(count), id_K.split(count), strict=True)
    ]
    return tuple(torch.cat(column) for column in zip(*pieces, strict=True))


def _autocast(tensor: Tensor) -> bool:
    return torch.is_autocast_enabled(tensor.device.type)


def _of_logits(
    logits_CV: Float[Tensor, "C V"], id_C: Int[Tensor, " C"], statistics: Sequence[str]
) -> tuple[Tensor, ...]:
    norm_C = logits_CV.logsumexp(-1)
    logprob_C = logits_CV.gather(-1, id_C[:, None])[:, 0] - norm_C
    if not statistics:
        return (logprob_C,)
    p_CV = (logits_CV - norm_C[:, None]).exp()
    return logprob_C, *(STATISTICS[name](p_CV, logits_CV, norm_C) for name in statistics)


class _Chunked(torch.autograd.Function):
    """``_of_logits`` of hidden W^T / T, chunk by chunk: forward keeps nothing but its inputs.

    backward   logits again, d logits by autograd, d hidden = d logits W / T, d W += d logits^T hidden / T
    """

    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]
        ctx: Any,
        hidden_KH: Tensor,
        weight_VH: Tensor,
        id_K: Tensor,
        temperature: float,
        statistics: tuple[str, ...],
        count: int,
        dtype: torch.dtype,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(hidden_KH, weight_VH, id_K)
        ctx.temperature, ctx.statistics, ctx.count, ctx.dtype = temperature, statistics, count, dtype
        with torch.autocast(weight_VH.device.type, enabled=False):
            used_VH = weight_VH.to(dtype)
            pieces = [
                _of_logits((h.to(dtype) @ used_VH.T).float().div_(temperature), i, statistics)
                for h, i in zip(hidden_KH.split(count), id_K.split(count), strict=True)
            ]
        return tuple(torch.cat(column) for column in zip(*pieces, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        hidden_KH, weight_VH, id_K = ctx.saved_tensors
        count, dtype = ctx.count, ctx.dtype
        used_VH = weight_VH.to(dtype)
        moved_KH = torch.empty_like(hidden_KH) if ctx.needs_input_grad[0] else None
        moved_VH = torch.zeros_like(weight_VH) if ctx.needs_input_grad[1] else None
        with torch.autocast(weight_VH.device.type, enabled=False):
            for start in range(0, len(id_K), count):
                chunk = slice(start, start + count)
                hidden_CH = hidden_KH[chunk].to(dtype)
                logits_CV = (hidden_CH @ used_VH.T).float().div_(ctx.temperature).requires_grad_()
                with torch.enable_grad():
                    found = _of_logits(logits_CV, id_K[chunk], ctx.statistics)
                (change_CV,) = torch.autograd.grad(found, logits_CV, [g[chunk] for g in gradients])
                del found, logits_CV
                change_CV = change_CV.div_(ctx.temperature).to(dtype)
                if moved_KH is not None:
                    moved_KH[chunk] = change_CV @ used_VH
                if moved_VH is None:
                    continue
                if dtype == moved_VH.dtype:
                    moved_VH.addmm_(change_CV.T, hidden_CH)
                else:
                    moved_VH += change_CV.T @ hidden_CH
        return moved_KH, moved_VH, None, None, None, None, None
