"""How many directions a set of vectors fills."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def effective_rank(x_NKH: Float[Tensor, "N K H"]) -> Float[Tensor, " N"]:
    """exp of the entropy of the singular values of each centred set of K vectors, taken as shares of their sum.

    1 where the vectors lie on a line or are all the same, min(K - 1, H) where they fill all directions alike.
    """
    x_NKH = x_NKH.double()
    norm_N = x_NKH.square().sum((-2, -1)).sqrt()
    x_NKH = x_NKH - x_NKH.mean(-2, keepdim=True)
    k, h = x_NKH.shape[-2:]
    gram_NRR = x_NKH @ x_NKH.mT if k <= h else x_NKH.mT @ x_NKH
    value_NR = torch.linalg.eigvalsh(gram_NRR).clamp(min=0).sqrt()
    # Equal vectors differ from their mean by rounding, which is no direction.
    value_NR = value_NR.where(value_NR > norm_N[:, None] * max(k, h) * torch.finfo(torch.float32).eps, 0)
    share_NR = value_NR / value_NR.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.special.entr(share_NR).sum(-1).exp()
