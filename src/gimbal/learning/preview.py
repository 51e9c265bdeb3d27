"""How the optimiser's next step would change a decision's logits if only that decision made the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.learning.ranks import several
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import TrainBatch

COLUMNS = frozenset({"step_slope_NS", "step_variance_NS"})
TOP = 32  # tokens whose logits are followed: those of most probability, and the decision itself
CHUNK = 1 << 21  # numbers of the last layer's step held at once


@torch.no_grad()
def preview(
    policy: AbstractPolicy, optimizer: torch.optim.Optimizer, batch: TrainBatch, hidden_NSH: Tensor, temperature: float
) -> dict[str, Float[Tensor, "N S"]]:
    """``step_slope_NS`` and ``step_variance_NS`` of a batch with advantages; see ``last_layer_step``. 0 where the mask is False."""
    if not isinstance(policy, TokenPolicy) or several():
        raise ValueError(
            "CurvatureMask predicts steps of the last layer of a language model with one learner process only: drop it from masks"
        )
    weight = policy.model.get_output_embeddings().weight
    if not weight.requires_grad:
        raise ValueError(
            "CurvatureMask predicts steps of the last layer, which this policy does not train: drop it from masks"
        )
    assert isinstance(batch.decisions, Tokens)
    row_K, column_K = batch.mask_NS.nonzero(as_tuple=True)
    id_K = batch.decisions.ids_NL[row_K, batch.decisions.prompt_N[row_K] + column_K]
    advantage_K = batch.column("advantage_NS", preview)[row_K, column_K]
    found = last_layer_step(
        weight,
        optimizer.param_groups[0],
        optimizer.state.get(weight, {}),
        hidden_NSH[row_K, column_K],
        id_K,
        advantage_K,
        temperature,
    )
    columns = {}
    for name, x_K in zip(("step_slope_NS", "step_variance_NS"), found, strict=True):
        columns[name] = torch.zeros(batch.shape, device=x_K.device).index_put((row_K, column_K), x_K)
    return columns


@torch.no_grad()
def last_layer_step(
    weight_VH: Float[Tensor, "V H"],
    group: Mapping[str, Any],
    state: Mapping[str, Tensor],
    hidden_KH: Float[Tensor, "K H"],
    id_K: Int[Tensor, " K"],
    advantage_K: Float[Tensor, " K"],
    temperature: float = 1.0,
) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """(v . u, Var_pi(u)) of each decision: pi = softmax(W h / T), v = onehot - pi, and u = G h / T, by which its logits move for each
    unit of learning rate.

    G is AdamW's direction for the decision's own gradient g = A v h^T / T: m / (sqrt(s) + epsilon), of the moments that W has
    (``state``, empty before the first update; ``group`` has the constants) after one more step by g, bias-corrected. Only the ``TOP``
    likeliest tokens are followed, and the decision's; the probability of the others counts as 0.
    """
    beta1, beta2 = group["betas"]
    count = float(state["step"]) + 1 if state else 1.0
    top = min(TOP, len(weight_VH))
    slopes, variances = [torch.zeros(0, device=weight_VH.device)], [torch.zeros(0, device=weight_VH.device)]
    for rows in torch.arange(len(id_K), device=id_K.device).split(max(1, CHUNK // (top * weight_VH.shape[1]))):
        h_CH, chosen_C1 = hidden_KH[rows].float(), id_K[rows][:, None]
        pi_CV = (h_CH @ weight_VH.float().T / temperature).softmax(-1)
        # The decision first, whatever its probability; then the others from the likeliest on.
        order_CT = pi_CV.scatter(1, chosen_C1, 2.0).topk(top).indices
        pi_CT = pi_CV.gather(1, order_CT)
        v_CT = -pi_CT
        v_CT[:, 0] += 1
        g_CTH = (advantage_K[rows].float()[:, None] * v_CT / temperature)[..., None] * h_CH[:, None]
        m_CTH, s_CTH = (1 - beta1) * g_CTH, (1 - beta2) * g_CTH.square()
        if state:
            m_CTH -= beta1 * state["exp_avg"][order_CT]  # the optimiser's are of the loss, which it lowers
            s_CTH += beta2 * state["exp_avg_sq"][order_CT]
        size_CTH = s_CTH.div_(1 - beta2**count).sqrt_().add_(group["eps"])
        u_CT = torch.einsum("cth,ch->ct", m_CTH.div_(1 - beta1**count).div_(size_CTH), h_CH) / temperature
        mean_C = (pi_CT * u_CT).sum(-1)
        slopes.append((v_CT * u_CT).sum(-1))
        variances.append((pi_CT * u_CT.square()).sum(-1) - mean_C.square())
    return torch.cat(slopes), torch.cat(variances).clamp(min=0)
