"""A policy that goes on with what it did until a decision is due, and a reflex that steps in."""

import pytest
import torch

from gimbal.policies.reflex import Reflexive
from gimbal.policies.squashed import SquashedGaussian

SIZES = {"observations": 6, "actions": 2, "hidden": (8,), "bound": 2.0}
K = 12


def seen(due=None):
    """Three numbers, the last action, and the time since the decision."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(K, 6, generator=g)
    x[:, -1] = torch.tensor([0.0, 1 / 3, 2 / 3]).repeat(K // 3) if due is None else 0.0 if due else 0.5
    return x


def noise():
    return torch.randn(K, 2, generator=torch.Generator().manual_seed(1))


def risk(policy, x, action):
    """The larger of the two members' probabilities."""
    return torch.sigmoid(policy.judge(x, action)).max(-1).values


def test_without_a_decision_it_goes_on_with_what_it_did():
    policy, x = Reflexive(**SIZES, tolerated=1.0).load(3), seen()
    action, logprob = policy.draw(x, noise(), torch.ones(K))
    decided, done = action[:, :2], action[:, 2:]
    due = x[:, -1] == 0
    own, of_own = policy.task.draw(x, noise(), torch.ones(K))
    torch.testing.assert_close(decided[due], own[due])
    torch.testing.assert_close(decided[~due], x[~due, 3:5])
    torch.testing.assert_close(logprob, torch.where(due, of_own, 0))
    assert torch.equal(done, decided) and torch.equal(policy.done(x, action), done)
    torch.testing.assert_close(policy.assess(x, action, 1.0)[0], logprob)
    sampled, its = policy.sample(x, noise())
    torch.testing.assert_close(sampled, decided)
    torch.testing.assert_close(its, logprob, rtol=1e-3, atol=1e-3)


def test_where_all_risk_is_tolerated_decisions_at_each_step_are_a_squashed_gaussian():
    policy, x = Reflexive(**SIZES, tolerated=1.0).load(3), seen(due=True)
    plain = SquashedGaussian(**SIZES).load(3)
    for temperature in (0.0, 0.5, 1.0):
        heat = torch.full((K,), temperature)
        (own, ours), (theirs, other) = policy.draw(x, noise(), heat), plain.draw(x, noise(), heat)
        assert torch.equal(policy.done(x, own), theirs) and torch.equal(ours, other)


def test_a_reflex_does_the_least_risky_of_its_actions():
    x = seen()
    calm = Reflexive(**SIZES, tolerated=1.0).load(3)
    decided = calm.draw(x, noise(), torch.ones(K))[0][:, :2]
    risk_K = risk(calm, x, decided).detach()
    policy = Reflexive(**SIZES, tolerated=float(risk_K.median()), escapes=5).load(3)
    done = policy.done(x, policy.draw(x, noise(), torch.ones(K))[0])
    for k in range(K):
        if risk_K[k] <= policy.spec.tolerated:
            assert torch.equal(done[k], decided[k])
        else:
            each = [float(risk(policy, x[k : k + 1], escape[None])) for escape in policy.escape_PA]
            assert torch.equal(done[k], policy.escape_PA[each.index(min(each))])
    assert 0 < (done != decided).any(-1).sum() < K
    assert policy.escape_PA.abs().max() <= 2 and len({*policy.escape_PA[:, 0].tolist()}) == 5


def test_at_the_rate_of_the_task_it_looks_at_decisions_alone():
    x, always = seen(), {"tolerated": 0.0, "escapes": 5}
    both, slow = (Reflexive(**SIZES, **always, within=within).load(3) for within in (True, False))
    (own, _), (other, _) = (policy.draw(x, noise(), torch.ones(K)) for policy in (both, slow))
    due = x[:, -1] == 0
    assert torch.equal(own[due], other[due])
    assert torch.equal(other[~due, :2], other[~due, 2:]) and (own[~due, :2] != own[~due, 2:]).any(-1).all()


def test_it_is_saved_and_read(tmp_path):
    policy = Reflexive(**SIZES, tolerated=0.0).load(3)
    policy.save(tmp_path)
    again, x = Reflexive(**SIZES, tolerated=0.0, model=str(tmp_path)).load(8), seen()
    assert torch.equal(*(one.draw(x, noise(), torch.ones(K))[0] for one in (policy, again)))
    SquashedGaussian(**SIZES).load(0).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"holds no Reflexive policy.*says nothing of escapes"):
        Reflexive(**SIZES, model=str(tmp_path / "other")).load()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tolerated": 1.1}, "policy.tolerated is 1.1; it is a risk, from 0 to 1"),
        ({"escapes": 1}, "escapes 1, the actions of a reflex .at least 2"),
        ({"members": 0}, "members 0 .at least 1"),
        ({"bound": 0.0}, "policy.bound is 0.0"),
    ],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Reflexive(**{**SIZES, **wrong})
