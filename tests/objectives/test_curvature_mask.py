"""The predicted shifts against AdamW steps really taken with the last layer."""

import dataclasses
import math

import pytest
import torch

from gimbal.learning import preview
from gimbal.learning.preview import last_layer_step
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.records import TrainBatch

V, H, S = 7, 5, 6
GROUP = {"betas": (0.9, 0.95), "eps": 1e-8}


def layer(seed=0):
    g = torch.Generator().manual_seed(seed)
    weight_VH = torch.randn(V, H, generator=g)
    hidden_SH = torch.randn(S, H, generator=g)
    return weight_VH, hidden_SH, torch.randint(V, (S,), generator=g), torch.randn(S, generator=g)


def moments(seed=1):
    """A last layer that AdamW has moved three times, by gradients of ordinary size: (its leaf, the optimiser)."""
    leaf_VH = layer()[0].clone().requires_grad_()
    optimizer, g = torch.optim.AdamW([leaf_VH], lr=0.0, betas=GROUP["betas"], weight_decay=0.0), torch.Generator()
    for _ in range(3):
        leaf_VH.grad = torch.randn(V, H, generator=g.manual_seed(seed))
        optimizer.step()
    return leaf_VH, optimizer


def batch(state=None):
    weight_VH, hidden_SH, token_S, advantage_S = layer()
    slope_S, variance_S = last_layer_step(weight_VH, GROUP, state or {}, hidden_SH, token_S, advantage_S)
    mask_NS = torch.ones(1, S, dtype=torch.bool)
    mask_NS[0, 4] = False
    logprob_NS = (hidden_SH @ weight_VH.T).log_softmax(-1).gather(-1, token_S[:, None]).T
    return TrainBatch(
        mask_NS=mask_NS,
        current_NS=logprob_NS,
        proximal_NS=logprob_NS,
        advantage_NS=advantage_S[None],
        facts={"step_slope_NS": slope_S[None], "step_variance_NS": variance_S[None]},
    )


def written_out(alpha, direction):
    """The two shifts of each decision from matrices [V, H] and [V, V], with ``direction`` of a gradient [V, H]."""
    weight_VH, hidden_SH, token_S, advantage_S = layer()
    policy, objective = [], []
    for h_H, token, a in zip(hidden_SH, token_S, advantage_S, strict=True):
        pi_V = (weight_VH @ h_H).softmax(-1)
        v_V = torch.nn.functional.one_hot(token, V) - pi_V
        g_VH = a * v_V[:, None] * h_H
        step_VH = direction(g_VH)
        u_V = step_VH @ h_H
        fisher_VV = torch.diag(pi_V) - pi_V[:, None] * pi_V
        curvature = a * ((v_V @ u_V) ** 2 - u_V @ fisher_VV @ u_V)
        policy.append(0.5 * alpha**2 * (v_V @ u_V) ** 2)
        objective.append(alpha * (g_VH * step_VH).sum() + 0.5 * alpha**2 * curvature)
    return torch.stack(policy).double(), torch.stack(objective).double()


def adamw(state):
    """AdamW's direction for a gradient to climb, by its published formula; its moments are of what it descends."""

    def direction(g_VH):
        count = state["step"] + 1
        m_VH = (-0.9 * state["exp_avg"] + 0.1 * g_VH) / (1 - 0.9**count)
        s_VH = (0.95 * state["exp_avg_sq"] + 0.05 * g_VH**2) / (1 - 0.95**count)
        return m_VH / (s_VH.sqrt() + 1e-8)

    return direction


@pytest.mark.parametrize("moved", [False, True])
def test_shifts_are_those_of_the_last_layer_written_out(moved):
    leaf_VH, optimizer = moments()
    state = optimizer.state[leaf_VH] if moved else {}
    fresh = {"step": 0, "exp_avg": torch.zeros(V, H), "exp_avg_sq": torch.zeros(V, H)}
    b = batch(state)
    expected = written_out(0.1, adamw(state or fresh))
    for found, wanted in zip(CurvatureMask(learning_rate=0.1).shifts(b), expected, strict=True):
        torch.testing.assert_close(found[0][b.mask_NS[0]], wanted[b.mask_NS[0]], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("moved", [False, True])
def test_a_step_of_the_optimiser_does_what_was_predicted(moved):
    """AdamW's own step by one decision: log-prob moves by sqrt(2 policy), A (pi' / pi - 1) by the objective's shift."""
    alpha = 1e-3
    _, hidden_SH, token_S, advantage_S = layer()
    leaf_VH, optimizer = moments()
    policy_S, objective_S = (
        x[0] for x in CurvatureMask(learning_rate=alpha).shifts(batch(optimizer.state[leaf_VH] if moved else None))
    )
    for t in (0, 1, 2, 3, 5):
        leaf_VH, optimizer = moments()
        if not moved:
            optimizer.state.clear()
        optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["eps"] = alpha, GROUP["eps"]

        def logprob(weight_VH, t=t):
            return (weight_VH.double() @ hidden_SH[t].double()).log_softmax(-1)[token_S[t]]

        before = logprob(leaf_VH)
        leaf_VH.grad = -torch.autograd.grad(advantage_S[t] * before, leaf_VH)[0]
        optimizer.step()
        gained = logprob(leaf_VH.detach()) - before.detach()
        assert float(gained.abs()) == pytest.approx(math.sqrt(2 * policy_S[t]), rel=3e-2)
        assert float(advantage_S[t] * gained.expm1()) == pytest.approx(float(objective_S[t]), rel=3e-3)


def test_the_tokens_not_followed_hardly_count():
    g = torch.Generator().manual_seed(0)
    weight_VH, hidden_SH = 2 * torch.randn(90, 16, generator=g), torch.randn(40, 16, generator=g)
    id_S = (hidden_SH @ weight_VH.T).softmax(-1).multinomial(1, generator=g)[:, 0]
    words = (weight_VH, GROUP, {}, hidden_SH, id_S, torch.randn(40, generator=g))
    part = last_layer_step(*words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preview, "TOP", 90)
        whole = last_layer_step(*words)
    for some, every in zip(part, whole, strict=True):
        torch.testing.assert_close(some, every, rtol=1e-2, atol=1e-2)


def test_by_hand():
    fact = torch.full((1, 1), -3.0)
    b = TrainBatch(
        mask_NS=torch.ones(1, 1, dtype=torch.bool),
        advantage_NS=torch.full((1, 1), -2.0),
        facts={"step_slope_NS": fact, "step_variance_NS": torch.ones(1, 1)},
    )
    policy, objective = CurvatureMask(learning_rate=0.1).shifts(b)
    # (.1 x 3)^2 / 2, and -2 (-.3 + .01 (9 - 1) / 2)
    assert float(policy) == pytest.approx(0.045) and float(objective) == pytest.approx(0.52)
    assert CurvatureMask(learning_rate=0.1, policy_shift=0.046, objective_shift=0.53)(b).all()
    assert not CurvatureMask(learning_rate=0.1, policy_shift=0.044, objective_shift=0.53)(b).any()
    assert not CurvatureMask(learning_rate=0.1, policy_shift=0.046, objective_shift=0.51)(b).any()


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
    kept = [int(CurvatureMask(learning_rate=rate)(batch()).sum()) for rate in (1.0, 1e-2, 2e-3, 1e-5)]
    assert kept == sorted(kept) and kept[0] < 5 and kept[-1] == 5


def test_one_sided_drops_what_would_lower_the_objective():
    b = dataclasses.replace(batch(), advantage_NS=torch.full((1, S), -3.0))
    wide = {"learning_rate": 0.5, "policy_shift": math.inf, "objective_shift": math.inf}
    lowered_NS = CurvatureMask(**wide).shifts(b)[1] < 0
    assert torch.equal(CurvatureMask(**wide, one_sided=True)(b), b.mask_NS & ~lowered_NS)
    assert lowered_NS.any()
    calm = dataclasses.replace(b, advantage_NS=torch.zeros(1, S))
    assert torch.equal(CurvatureMask(one_sided=True)(calm), b.mask_NS)


def test_refuses_thresholds_that_keep_nothing():
    with pytest.raises(ValueError, match="above 0"):
        CurvatureMask(policy_shift=0.0)
