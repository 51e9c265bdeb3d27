"""The predicted shifts against the last layer written out, and against a step really taken."""

import dataclasses
import math

import pytest
import torch

from gimbal.objectives.clipped_ratio import ClippedRatio
from gimbal.objectives.curvature_mask import CurvatureMask
from gimbal.records import TrainBatch

V, H, S = 7, 5, 6


def layer(seed=0):
    g = torch.Generator().manual_seed(seed)
    weight_VH = torch.randn(V, H, generator=g, dtype=torch.float64)
    hidden_SH = torch.randn(S, H, generator=g, dtype=torch.float64)
    return weight_VH, hidden_SH, torch.randint(V, (S,), generator=g), torch.randn(S, generator=g, dtype=torch.float64)


def batch():
    weight_VH, hidden_SH, token_S, advantage_S = layer()
    logprob_SV = (hidden_SH @ weight_VH.T).log_softmax(-1)
    mask_NS = torch.ones(1, S, dtype=torch.bool)
    mask_NS[0, 4] = False
    return TrainBatch(
        mask_NS=mask_NS,
        current_NS=logprob_SV.gather(-1, token_S[:, None]).T,
        proximal_NS=logprob_SV.gather(-1, token_S[:, None]).T,
        advantage_NS=advantage_S[None],
        hidden_NSH=hidden_SH[None],
        facts={"power2_NS": logprob_SV.mul(2).exp().sum(-1)[None], "power3_NS": logprob_SV.mul(3).exp().sum(-1)[None]},
    )


def written_out(alpha):
    """The two shifts of each decision from matrices [V, H] and [V, V]."""
    weight_VH, hidden_SH, token_S, advantage_S = layer()
    policy, objective = [], []
    for h_H, token, a in zip(hidden_SH, token_S, advantage_S, strict=True):
        pi_V = (weight_VH @ h_H).softmax(-1)
        v_V = torch.nn.functional.one_hot(token, V) - pi_V
        g_VH = a * v_V[:, None] * h_H
        u_V = g_VH @ h_H
        fisher_VV = torch.diag(pi_V) - pi_V[:, None] * pi_V
        curvature = a * ((v_V @ u_V) ** 2 - u_V @ fisher_VV @ u_V)
        policy.append(0.5 * alpha**2 * (v_V @ u_V) ** 2)
        objective.append(alpha * (g_VH * g_VH).sum() + 0.5 * alpha**2 * curvature)
    return torch.stack(policy), torch.stack(objective)


def test_shifts_are_those_of_the_last_layer_written_out():
    b = batch()
    for found, expected in zip(CurvatureMask(learning_rate=0.1).shifts(b), written_out(0.1), strict=True):
        torch.testing.assert_close(found[0][b.mask_NS[0]], expected[b.mask_NS[0]], atol=1e-12, rtol=1e-9)


def test_a_small_step_does_what_was_predicted():
    """log-prob moves by sqrt(2 policy); A (pi' / pi - 1) by the objective's shift, to second order."""
    alpha = 1e-3
    weight_VH, hidden_SH, token_S, advantage_S = layer()
    policy_S, objective_S = (x[0] for x in CurvatureMask(learning_rate=alpha).shifts(batch()))
    for t in (0, 1, 2, 3, 5):
        leaf_VH = weight_VH.clone().requires_grad_()
        logprob = (leaf_VH @ hidden_SH[t]).log_softmax(-1)[token_S[t]]
        (gradient,) = torch.autograd.grad(advantage_S[t] * logprob, leaf_VH)
        moved = ((weight_VH + alpha * gradient) @ hidden_SH[t]).log_softmax(-1)[token_S[t]] - logprob.detach()
        assert float(moved.abs()) == pytest.approx(math.sqrt(2 * policy_S[t]), rel=2e-2)
        assert float(advantage_S[t] * moved.expm1()) == pytest.approx(float(objective_S[t]), rel=1e-3)


def test_by_hand():
    half = torch.full((1, 1), 0.5, dtype=torch.float64)
    b = TrainBatch(
        mask_NS=torch.ones(1, 1, dtype=torch.bool),
        current_NS=half.log(),
        advantage_NS=-2 * torch.ones(1, 1).double(),
        hidden_NSH=torch.tensor([[[1.0, 2.0]]], dtype=torch.float64),
        facts={"power2_NS": half, "power3_NS": half / 2},
    )
    policy, objective = CurvatureMask(learning_rate=0.1).shifts(b)
    # |h|^2 = 5, |v|^2 = 1/2, s = -5, variance = 1/4: curvature = -2 (25 - 100 / 4) = 0
    assert float(policy) == pytest.approx(0.125) and float(objective) == pytest.approx(1.0)
    assert CurvatureMask(learning_rate=0.1, policy_shift=0.13, objective_shift=1.01)(b).all()
    assert not CurvatureMask(learning_rate=0.1, policy_shift=0.12, objective_shift=1.01)(b).any()
    assert not CurvatureMask(learning_rate=0.1, policy_shift=0.13, objective_shift=0.99)(b).any()


@pytest.mark.parametrize(
    "mask", [CurvatureMask(policy_shift=math.inf, objective_shift=math.inf), CurvatureMask(learning_rate=0.0)]
)
def test_no_threshold_or_no_step_reduces_to_the_base_method(mask):
    b = batch()
    keep_NS = mask(b)
    assert torch.equal(keep_NS, b.mask_NS)
    gradients = []
    for weight_NS in (b.mask_NS.double(), keep_NS.double()):
        logprob_NS = b.proximal_NS.clone().requires_grad_()
        gradients.append(torch.autograd.grad((weight_NS * ClippedRatio()(logprob_NS, b).loss_NS).sum(), logprob_NS)[0])
    assert torch.equal(*gradients)


def test_the_smaller_the_step_the_more_is_kept_until_all_is():
    kept = [int(CurvatureMask(learning_rate=rate)(batch()).sum()) for rate in (1.0, 1e-2, 1e-3, 1e-5)]
    assert kept == sorted(kept) and kept[0] < 5 and kept[-1] == 5


def test_one_sided_drops_what_would_lower_the_objective():
    b = dataclasses.replace(batch(), advantage_NS=torch.full((1, S), -3.0, dtype=torch.float64))
    wide = {"learning_rate": 0.5, "policy_shift": math.inf, "objective_shift": math.inf}
    lowered_NS = CurvatureMask(**wide).shifts(b)[1] < 0
    assert torch.equal(CurvatureMask(**wide, one_sided=True)(b), b.mask_NS & ~lowered_NS)
    assert lowered_NS.any()
    calm = dataclasses.replace(b, advantage_NS=torch.zeros(1, S).double())
    assert torch.equal(CurvatureMask(one_sided=True)(calm), b.mask_NS)


def test_refuses_thresholds_that_keep_nothing():
    with pytest.raises(ValueError, match="above 0"):
        CurvatureMask(policy_shift=0.0)
