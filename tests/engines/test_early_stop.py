"""Episodes that are cut off early: by which rule, where, and that it is no end."""

import pickle
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch

from gimbal import recipes
from gimbal.engines.base import Request
from gimbal.engines.early_stop import EarlyStop, Reflection, Trace
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.base import POLICY
from gimbal.learning.updates.off_policy import CRITIC
from gimbal.ops import philox
from gimbal.policies.control import StepSampling
from gimbal.policies.squashed import SquashedGaussian
from gimbal.runtime.local import Trainer

TASKS = Gymnasium(environment="gimbal.environments.sticky_point:StickyPoint", seed=3)


@pytest.mark.parametrize(
    ("worth", "error", "worths", "errors", "stops"),
    [
        (3.9, 2.0, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], True),  # w = .5 * 4 / 2 = 1: the bar is the median
        (4.1, 2.0, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], False),
        (3.9, 1e-9, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], True),  # w is at most 1: what is better than usual goes on
        (4.1, 1e-9, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], False),
        (1.1, 8.0, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], False),  # w = 1/4: the bar is 1
        (0.9, 8.0, [4.0, 9.0, 1.0], [4.0, 4.0, 9.0], True),
        (-15.0, 8.0, [-4.0, -9.0, -1.0], [4.0, 4.0, 9.0], False),  # below 0 the bar is -4 / w = -16
        (-17.0, 8.0, [-4.0, -9.0, -1.0], [4.0, 4.0, 9.0], True),
    ],
)
def test_the_rule_by_hand(worth, error, worths, errors, stops):
    assert EarlyStop(coefficient=0.5)(worth, error, worths, errors) is stops


def test_a_larger_error_never_stops_what_a_smaller_one_lets_go_on():
    draw, rule = np.random.default_rng(0), EarlyStop()
    for _ in range(300):
        worths, errors = draw.normal(draw.normal(), 1, 7).tolist(), draw.exponential(1, 7).tolist()
        worth = float(draw.normal(median(worths), 1))
        said = [rule(worth, error, worths, errors) for error in (0.0, 0.1, 1.0, 10.0)]
        assert said == sorted(said, reverse=True) and (worth < median(worths) or not any(said))


def made(rule, slots=2, segment=7):
    policy = SquashedGaussian(observations=2, actions=2, judges=2).load(0)
    engine = Episodes(slots=slots, segment=segment, early_stop=rule).start(policy)
    engine.load(0, policy.state_dict())
    return policy, engine


def rows_of(rule, count=200, resumed_at=(), **how):
    _, engine = made(rule, **how)
    rows, steps = [], 0
    for index in range(count):
        task = TASKS[index]
        engine.submit(Request(group=index, task=task, sample=0, sampling=StepSampling(max_length=60), seed=0))
        if engine.in_flight < how.get("slots", 2):
            continue
        while engine.in_flight:
            if steps in resumed_at:
                state = pickle.loads(pickle.dumps(engine.state_dict()))
                engine = made(rule, **how)[1]
                engine.load_state_dict(state)
            rows += [finished.rollout for finished in engine.step()]
            steps += 1
    return rows


RULE = EarlyStop(warmup=100, after=3, fewest=2, window=6, spared=0.3, gamma=0.9, coefficient=1.0)


def test_episodes_end_where_the_rule_says_by_what_came_before():
    """An independent account, of one environment in segments: values of the policy's own judge, medians by sorting."""
    policy, _ = made(RULE)
    past, worths, errors, total, seen, paid = [], [], [], 0, {False: 0, True: 0}, 0.0
    for index, row in enumerate(rows_of(RULE, slots=1)):
        steps = row.decisions
        if not worths:
            sits = philox("spared", 0, TASKS[index].id, 0).random() < RULE.spared
        q_S = policy.worth(steps.observation_NSO[0], steps.action_NSA[0]).tolist()
        for t, worth in enumerate(q_S):
            if worths:
                errors.append((worths[-1] - paid - RULE.gamma * worth) ** 2)
            worths.append(worth)
            paid, total, at = float(row.reward_S[t]), total + 1, len(worths) - 1
            others = [(w, e) for w, e in past[-RULE.window :] if len(w) > at]
            stops = False
            if total > RULE.warmup and at >= RULE.after and not sits and len(others) >= RULE.fewest:
                usual, common = (median(x) for x in zip(*((w[at], e[at - 1]) for w, e in others), strict=True))
                w = min(1.0, common / errors[-1])
                stops = worth < (w * usual if usual > 0 else usual / w)
            last = t == row.length - 1
            assert not stops or last
            if stops and not row.decisions.terminated_N and at < 59:
                assert row.stop == "truncated" and row.scores["stopped"] == 1.0 and "return" not in row.scores
            elif last and row.stop != "paused":
                assert row.scores["stopped"] == 0.0 and "return" in row.scores
        if row.stop != "paused":
            seen[row.scores["stopped"] == 1.0] += 1
            past.append((worths, errors))
            worths, errors = [], []
    assert min(seen.values()) > 5, seen


def test_spared_1_and_after_as_long_as_the_episodes_are_the_bits_without_it():
    plain = rows_of(None)
    for rule in (replace(RULE, spared=1.0), replace(RULE, after=60), replace(RULE, warmup=10**6)):
        for one, other in zip(plain, rows_of(rule), strict=True):
            assert torch.equal(one.decisions.action_NSA, other.decisions.action_NSA) and one.stop == other.stop
            assert torch.equal(one.decisions.final_NO, other.decisions.final_NO)
    assert any(one.stop != other.stop for one, other in zip(plain, rows_of(RULE), strict=True))


def test_it_is_resumed_to_the_same_bits():
    rest, again = rows_of(RULE), rows_of(RULE, resumed_at=(3, 60, 61, 200, 500))
    for one, other in zip(rest, again, strict=True):
        assert torch.equal(one.decisions.action_NSA, other.decisions.action_NSA)
        assert (one.stop, one.scores) == (other.stop, other.scores)


def test_an_early_stop_is_no_end():
    """A truncation, behind which values look on: with the last observation of its own episode, and a discount above 0."""
    stopped = [row.decisions for row in rows_of(RULE) if row.scores.get("stopped")]
    assert stopped and not any(bool(steps.terminated_N) for steps in stopped)
    for steps in stopped:
        single, _ = steps.each()
        assert not single.ended_NS.any()
        moved_NS = (single.next_NSO - single.observation_NSO)[:, 0]
        assert float(moved_NS.abs().max()) <= 0.1 + 1e-6  # a step from its own last place, and no new start


def test_the_judge_is_the_critic_after_each_step():
    run = recipes.load("least")
    store = replace(run.store, learning_starts=0, minibatch=8)
    trainer = Trainer(replace(run, store=store, held_out=None, steps=3))
    trainer.begin()
    for _ in range(3):
        trainer.advance()
        models = trainer.learner.models
        judge, critic = models[POLICY].judge.state_dict(), models[CRITIC].state_dict()
        assert judge.keys() == critic.keys() and all(torch.equal(judge[name], critic[name]) for name in judge)
    trainer.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"coefficient": 0.0},
        {"coefficient": 1.5},
        {"spared": -0.1},
        {"gamma": 1.1},
        {"after": 0},
        {"warmup": -1},
        {"fewest": 0},
        {"fewest": 9, "window": 8},
    ],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="EarlyStop has"):
        EarlyStop(**wrong)


def test_errors_of_a_step_are_those_of_one_step_of_bellman():
    reflection, trace = Reflection(EarlyStop(gamma=0.5, warmup=0)), Trace(spared=False)
    for worth, reward in ((1.0, 2.0), (4.0, -1.0), (0.0, 0.0)):
        assert not reflection.over(trace, worth)
        trace.reward = reward
    assert trace.errors == [(1 - 2 - 2) ** 2, (4 + 1 - 0) ** 2] and reflection.steps == 3
