"""A task that decides every few steps and the risk of damage, against sums taken here, and their limiting cases."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.reflex import ReflexActorCritic
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.control import Steps
from gimbal.policies.reflex import Reflexive
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch

K, BOUND = 12, 2.0
PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 5, "actions": 2, "hidden": (8,), "bound": BOUND}


def too_far(next_KO):
    return next_KO[:, 0] > 0.5


def made_of(**settings):
    own = {"critic": ActionValues(**SIZES), "gamma": 0.9, "alpha": 0.3, "optimization": PLAIN, **settings}
    return ReflexActorCritic(unsafe=too_far, **own)


def batch_of(due=False):
    """Two numbers, the last action, and the time since the decision; decisions are due in every third, or in all."""
    g = torch.Generator().manual_seed(0)
    seen, after = torch.randn(K, 1, 5, generator=g), torch.randn(K, 5, generator=g)
    time = torch.arange(K) % 3 / 3 * (not due)
    seen[:, 0, -1], after[:, -1] = time, time.roll(-1)
    decided, done = torch.randn(K, 1, 2, generator=g), torch.randn(K, 1, 2, generator=g)
    done[:6] = decided[:6]
    steps = Steps(
        observation_NSO=seen,
        action_NSA=torch.cat([decided, done], -1),
        final_NO=after,
        length_N=torch.ones(K, dtype=torch.long),
        terminated_N=torch.arange(K) % 4 == 0,
    )
    return TrainBatch(
        mask_NS=torch.ones(K, 1, dtype=torch.bool),
        reward_NS=torch.randn(K, 1, generator=g),
        decisions=steps,
        facts={MOVE: torch.ones(K, dtype=torch.long)},
    )


def learner(update, policy=Reflexive(**SIZES)):
    made = Learner(policy.load(1), update, seed=0)
    with torch.no_grad():  # targets that are not what they follow
        for name in made.models.modules:
            for weight in made.models[name].parameters() if name.endswith("target") else ():
                weight.add_(0.1)
    return made


def losses(made, batch):
    rows = made.update.survey(made.models, made.prepare(batch))[0]
    return rows, {loss.of[0]: loss for loss in made.update.losses(made.models, rows)}


def acted(made, x, noise, due):
    """What the task does, and its log-probability in units of the bound, written out."""
    mean, log_std = made.policy.task.moments(x).chunk(2, -1)
    u = mean + log_std.exp() * noise
    logprob = torch.distributions.Normal(mean, log_std.exp()).log_prob(u).sum(-1)
    logprob = logprob - (1 - u.tanh().square()).log().sum(-1)
    return torch.where(due[:, None], BOUND * u.tanh(), x[:, 2:4]), torch.where(due, logprob, 0)


@torch.no_grad()
def targets(made, rows, price, foresight):
    """y and the target of the risk of each step."""
    batch, models, found = batch_of(), made.models, []
    x = batch.decisions.final_NO
    action, logprob = acted(made, x, rows.facts["noise/next"][:, 0], x[:, -1] == 0)
    worth = models["target"](x, action).min(-1).values - models["temperature"].log.exp() * logprob
    ahead = models["risk_target"](x, action).sigmoid().max(-1).values
    for k in range(K):
        damage, lasts = float(x[k, 0] > 0.5), float(not batch.decisions.terminated_N[k])
        y = float(batch.reward_NS[k, 0]) - price * damage + 0.9 * lasts * float(worth[k])
        found.append((y, 1.0 if damage else foresight * lasts * float(ahead[k])))
    return torch.tensor(found).unbind(-1)


def test_the_values_are_their_equations():
    made = learner(made_of(price=0.7, foresight=0.6))
    rows, yielded = losses(made, batch_of())
    steps = batch_of().decisions
    seen, decided, done = steps.observation_NSO[:, 0], *steps.action_NSA[:, 0].chunk(2, -1)
    y, danger = targets(made, rows, 0.7, 0.6)
    expected = (made.models["critic"](seen, decided) - y[:, None]).square().sum(-1).mean()
    torch.testing.assert_close(yielded["critic"].value, expected)
    p = made.models["risk"](seen, done).sigmoid()
    likely = danger[:, None] * p.log() + (1 - danger[:, None]) * (1 - p).log()
    torch.testing.assert_close(yielded["risk"].value, -likely.sum(-1).mean())
    assert 0 < (danger == 1).sum() < K


def test_the_policy_decides_everywhere_and_climbs_its_value():
    made = learner(made_of())
    rows, yielded = losses(made, batch_of())
    x = batch_of().decisions.observation_NSO[:, 0].clone()
    x[:, -1] = 0
    action, logprob = acted(made, x, rows.facts["noise/acts"][:, 0], torch.ones(K, dtype=torch.bool))
    value = (0.3 * logprob - made.models["critic"](x, action).min(-1).values).mean()
    log_alpha = made.models["temperature"].log
    expected = value - log_alpha * (logprob.detach() - 2).mean()  # the entropy is held at -2
    found = yielded["policy"].value
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    weights = [*made.policy.task.parameters(), log_alpha]
    ours, theirs = (torch.autograd.grad(loss, weights, retain_graph=True) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_the_gradient_of_the_risk_is_that_of_finite_differences():
    made = learner(made_of(foresight=0.6))
    weight = made.models["risk"].biases[-1]
    (gradient,) = torch.autograd.grad(losses(made, batch_of())[1]["risk"].value, [weight])
    moved = []
    for step in (1e-2, -1e-2):
        with torch.no_grad():
            weight.add_(step)
        moved.append(float(losses(made, batch_of())[1]["risk"].value))
        with torch.no_grad():
            weight.sub_(step)
    assert float(gradient.sum()) == pytest.approx((moved[0] - moved[1]) / 2e-2, rel=2e-3)


def test_without_foresight_risk_is_of_this_very_step():
    _, yielded = losses(learner(made_of(foresight=0.0)), batch_of())
    broken = too_far(batch_of().decisions.final_NO).float().mean()
    assert yielded["risk"].metrics["risk/target"] == pytest.approx(float(broken))


def test_decisions_at_each_step_and_no_reflex_are_sac():
    batch = batch_of(due=True)
    made = learner(made_of(), Reflexive(**SIZES, tolerated=1.0))
    plain = learner(
        SoftActorCritic(critic=ActionValues(**SIZES), gamma=0.9, alpha=0.3, optimization=PLAIN),
        SquashedGaussian(**SIZES),
    )
    (_, own), (_, theirs) = losses(made, batch), losses(plain, halved(batch))
    for name in ("critic", "policy"):
        torch.testing.assert_close(own[name].value, theirs[name].value)
    assert own["policy"].metrics["alpha"] == theirs["policy"].metrics["alpha"]


def halved(batch):
    """With what was decided alone."""
    return replace(batch, decisions=replace(batch.decisions, action_NSA=batch.decisions.action_NSA[..., :2]))


def test_a_price_lowers_what_a_broken_limit_earns():
    targets_of = [
        losses(learner(made_of(price=price)), batch_of())[1]["critic"].metrics["q/target"] for price in (0.0, 2.0)
    ]
    broken = float(too_far(batch_of().decisions.final_NO).float().mean())
    assert targets_of[0] - targets_of[1] == pytest.approx(2 * broken, rel=1e-4)


def test_the_reflex_reads_what_was_learned():
    made = learner(made_of())
    before = [weight.clone() for weight in made.policy.judge.parameters()]
    told = made.step(made.prepare(batch_of()))
    assert any(not torch.equal(*pair) for pair in zip(before, made.policy.judge.parameters(), strict=True))
    for own, learned in zip(made.policy.judge.parameters(), made.models["risk"].parameters(), strict=True):
        assert torch.equal(own, learned)
    assert {"risk/loss", "risk/mean", "q/loss", "entropy/policy"} <= told.keys()


def test_the_shares_are_of_what_came_in():
    batch = batch_of()
    fresh = torch.where(torch.arange(K) < 4, 0, -1)  # eight have just come in
    made = learner(made_of())
    _, told = made.update.prepare(made.models, batch.with_columns({MOVE: fresh}))
    assert told["reflex/share"] == pytest.approx(6 / 8)
    assert told["unsafe/mean"] == pytest.approx(float(too_far(batch.decisions.final_NO[4:]).float().mean()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"unsafe": ""}, "unsafe is ''; it is a function of next observations"),
        ({"foresight": 1.0}, "foresight 1.0 .from 0 to below 1"),
        ({"price": -1.0}, "price -1.0, what a broken limit costs"),
        ({"alpha": 0.0}, "alpha 0.0 .above 0"),
    ],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        ReflexActorCritic(**{"critic": ActionValues(**SIZES), "unsafe": too_far, **wrong})
