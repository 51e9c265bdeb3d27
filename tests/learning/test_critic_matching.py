"""Matching that a critic of noisy states weighs, against central differences of its equations; and what its parts leave of it."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from test_denoising_gradients import close, differences, gradient, moved, policy_of, said, values

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from test_distribution_matching import FLOW, ROWS, batch_of, learner_of

from gimbal.advantages import GroupCentered
from gimbal.learning.updates import forward_process
from gimbal.learning.updates.base import POLICY
from gimbal.learning.updates.critic_matching import CRITIC, WEIGHT, CriticWeightedMatching
from gimbal.learning.updates.forward_process import REFERENCE

UPDATE = CriticWeightedMatching(draws=2, tau=0.7, most=2.0, coef=0.3, warm_up=0, advantage=GroupCentered())
REWARD = torch.arange(ROWS).float()


def parts(update, base=None):
    """(learner, its prepared batch, its surveyed minibatch), with a critic and a reference apart from the policy."""
    policy = policy_of(0, FLOW()) if base is None else base
    batch = batch_of(policy)
    reward_NS = batch.mask_NS * REWARD[:, None]
    batch = replace(batch, reward_NS=reward_NS, episode_N=torch.arange(ROWS))
    beside = {CRITIC: moved(policy, 0.3)} | ({REFERENCE: moved(policy, 0.2, seed=6)} if update.coef else {})
    learner = learner_of(policy, update, **beside)
    prepared = learner.prepare(batch)
    return learner, prepared, update.survey(learner.models, prepared)[0]


def states(batch):
    """(n, k, x_t, t, v*) of each sample and draw."""
    place_NK, eps_NKD = batch.facts[forward_process.PLACE], batch.facts[forward_process.EPS]
    for n in range(ROWS):
        for k in range(UPDATE.draws):
            x, eps, t = batch.decisions.sample_ND[n].flatten(), eps_NKD[n, k].flatten(), float(place_NK[n, k])
            x, eps = x.double(), eps.double()
            yield n, k, (1 - t) * x + t * eps, t, eps - x


def test_both_sides():
    learner, batch, minibatch = parts(UPDATE)
    earned_N = (REWARD - REWARD.mean()).double()
    critic, first = values(learner.models[CRITIC]), values(learner.models[REFERENCE])
    weight = {
        (n, k): ((earned_N[n] - said(critic, x, t).mean()).clamp(-2.0, 2.0) / 0.7).exp()
        for n, k, x, t, _ in states(batch)
    }
    for at, w in weight.items():
        assert float(minibatch.facts[WEIGHT][at]) == pytest.approx(float(w), rel=1e-4)
    bound = {(n, k) for (n, k), w in weight.items() if abs(math.log(float(w))) > 1.99 / 0.7}
    assert 0 < len(bound) < len(weight), "some are cut, and some are not"

    def policys(w):
        losses = [
            weight[n, k] * (said(w, x, t) - v).square().mean()
            + 0.3 * (said(w, x, t) - said(first, x, t)).square().mean()
            for n, k, x, t, v in states(batch)
        ]
        return torch.stack(losses).mean()

    def critics(w):
        return torch.stack([(said(w, x, t).mean() - earned_N[n]).square() for n, _, x, t, _ in states(batch)]).mean()

    own, theirs = learner.update.losses(learner.models, minibatch)
    assert (own.of, theirs.of) == ((CRITIC,), (POLICY,))
    own.value.backward()
    theirs.value.backward()
    close(gradient(learner.policy), differences(policys, values(learner.policy)))
    close(gradient(learner.models[CRITIC]), differences(critics, critic))


def weights(update, change=lambda learner: None):
    learner, batch, _ = parts(update)
    change(learner)
    return update.survey(learner.models, batch)[0].facts[WEIGHT]


def test_what_its_parts_leave_of_it():
    def silent(learner):
        with torch.no_grad():
            for weight in learner.models[CRITIC].parameters():
                weight.zero_()

    wide = replace(UPDATE, most=10.0)
    by_score_NK = ((REWARD - REWARD.mean()) / 0.7).exp()[:, None].expand(ROWS, 2)
    torch.testing.assert_close(weights(wide, silent), by_score_NK)
    torch.testing.assert_close(weights(replace(UPDATE, warm_up=1)), by_score_NK)
    for update in (replace(UPDATE, most=1e-6), replace(UPDATE, tau=1e6)):
        torch.testing.assert_close(weights(update), torch.ones(ROWS, 2), atol=1e-5, rtol=0)
    assert (weights(wide) - by_score_NK).abs().max() > 0.1


def test_the_critic_moves_and_the_warm_up_ends_by_the_runs_own_count():
    update = replace(UPDATE, warm_up=1)
    learner, batch, _ = parts(update)
    before = copy.deepcopy(learner.models[CRITIC].state_dict())
    told = [learner.step(batch)["critic/warm"] for _ in range(2)]
    assert told == [0.0, 1.0]
    assert all(not torch.equal(x, before[name]) for name, x in learner.models[CRITIC].state_dict().items())


def test_what_weighs_nothing_is_refused_by_name():
    for name, value in (("tau", 0.0), ("most", -1.0), ("coef", -1.0), ("warm_up", -1)):
        with pytest.raises(ValueError, match=f"{name}.* {value}"):
            CriticWeightedMatching(**{name: value})
