"""Plans that are driven at other speeds where the environment pays more, held against all of them played here."""

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gimbal.dataflow.replay.corrected_plans import CorrectedPlans
from gimbal.environments.gym import Environment
from gimbal.environments.merging import FASTEST, STEP
from gimbal.environments.merging_plans import AHEAD, PLANS, MergingPlans, plans, pushes_of
from gimbal.environments.recording import RecordedEpisode, Recording
from gimbal.records import Task


def played(seed, plans, source=PLANS):
    """A recorded episode of these plans, as far as it goes."""
    world = Environment(source)
    seen, earned, terminated = [world.reset(Task(id="", source=source, seed=seed), 0)], [], False
    for plan in plans:
        moment = world.step(plan)
        seen.append(moment.observation)
        earned.append(moment.reward)
        terminated = moment.terminated
        if moment.terminated or moment.truncated:
            break
    return RecordedEpisode(
        observation_SO=np.stack(seen),
        action_SA=np.stack(plans[: len(earned)]).astype(np.float32),
        reward_S=np.array(earned, np.float32),
        terminated=terminated,
        seed=seed,
    )


def drawn(seed, low=-0.4, high=0.6):
    """Eight plans by chance."""
    return list(np.random.default_rng(seed).uniform(low, high, (8, AHEAD)).astype(np.float32))


def of(*episodes):
    return Recording(source=PLANS, episodes=episodes)


def bettered(episode, step, factors, longest):
    """(total, factor, plan) of the best factor, by episodes played from their beginning; behind a crash its last plan goes on."""
    tried = []
    for factor in (1.0, *factors):
        world = Environment(PLANS)
        world.reset(Task(id="", source=PLANS, seed=episode.seed), 0)
        for plan in episode.action_SA[:step]:
            world.step(plan)
        plan = world.replanned(episode.action_SA[step], factor)
        later = [*episode.action_SA[step + 1 :], *[episode.action_SA[-1]] * (longest - episode.length)]
        again = played(episode.seed, [*episode.action_SA[:step], plan, *later])
        tried.append((float(again.reward_S[step:].sum()), factor, plan))
    return max(tried, key=lambda found: found[0])


@pytest.mark.slow
def test_each_plan_becomes_the_one_that_earns_most_with_all_else_as_recorded():
    factors, changed, left_out = (0.8, 1.2), 0, 0
    episodes = [played(1, drawn(1)), played(3, drawn(3, 0.5, 1.0))]
    assert any(episode.terminated for episode in episodes) and not all(episode.terminated for episode in episodes)
    found, shares = CorrectedPlans(factors=factors)(of(*episodes))
    made, longest = iter(found.episodes), max(episode.length for episode in episodes)
    for episode in episodes:
        for step in range(episode.length):
            _, factor, plan = bettered(episode, step, factors, longest)
            better = factor != 1
            changed += better
            if not better and episode.terminated:
                left_out += 1
                continue
            one = next(made)
            assert one.length == 1 and np.array_equal(one.observation_SO[0], episode.observation_SO[step])
            np.testing.assert_allclose(one.action_SA[0], plan)
    assert next(made, None) is None and changed and left_out
    steps = sum(episode.length for episode in episodes)
    assert shares == pytest.approx({"corrected": changed / steps, "left_out": left_out / steps})


def test_a_plan_at_its_own_speeds_is_no_correction():
    """What was recorded is rounded, and pays for pushes beyond a speed's end: neither makes a plan better."""
    episodes = [e for n in range(40) if not (e := played(n, drawn(n, -1.0, 1.0))).terminated][:4]
    assert CorrectedPlans(factors=(1.0,))(of(*episodes))[1] == {"corrected": 0.0, "left_out": 0.0}


@pytest.mark.parametrize("setting", [{"factors": ()}, {"margin": math.inf}])
def test_without_factors_or_with_no_margin_that_is_passed_it_is_filtered_imitation(setting):
    safe, crashed = (next(e for n in range(40) if (e := played(n, drawn(n))).terminated is so) for so in (False, True))
    found, shares = CorrectedPlans(**setting)(of(safe, crashed))
    assert np.array_equal(np.concatenate([one.action_SA for one in found.episodes]), safe.action_SA)
    np.testing.assert_allclose([one.reward_S[0] for one in found.episodes], safe.reward_S)
    assert np.array_equal([one.observation_SO[1] for one in found.episodes], safe.observation_SO[1:])
    assert shares == {"corrected": 0.0, "left_out": pytest.approx(crashed.length / (safe.length + crashed.length))}


def test_a_plan_at_other_speeds_goes_so_much_of_the_way():
    world = MergingPlans()
    world.reset(seed=0)
    speed = float(world.inside.scene.own[1])
    plan = np.full(AHEAD, -0.1, np.float32)
    speeds = {}
    for factor in (0.9, 1.0, 1.1):
        found = speed + STEP * np.cumsum(pushes_of(world.replanned(plan, factor)))
        assert (found < FASTEST).all()
        speeds[factor] = found
    np.testing.assert_allclose(speeds[1.0], speed + STEP * np.cumsum(pushes_of(plan)))
    np.testing.assert_allclose(speeds[0.9][1:], 0.9 * speeds[1.0][1:], rtol=1e-6)
    np.testing.assert_allclose(speeds[1.1][2:], 1.1 * speeds[1.0][2:], rtol=1e-6)
    assert np.abs(world.replanned(plan, 0.0)).max() <= 1, "the strongest brake, and then it stands"


def test_what_cannot_be_tried_again_is_told_and_another_environment_refused():
    episode = played(1, drawn(1))
    assert CorrectedPlans().unfit(of(episode)) == ""
    assert "episode 1 has no seed" in CorrectedPlans().unfit(of(episode, replace(episode, seed=None)))
    costly = replace(episode, cost_S=np.zeros(episode.length + 1, np.float32))
    assert "the data tell costs" in CorrectedPlans().unfit(of(costly))
    assert "has no method replanned" in CorrectedPlans().unfit(pendulum())
    assert "name no environment" in CorrectedPlans().unfit(replace(of(episode), source=""))
    assert "pays" in CorrectedPlans().unfit(plans(2)), "the logs are of other drivers, who pay in another way"
    assert "in step 0 of episode 0" in CorrectedPlans().unfit(replace(of(episode), source=f"{PLANS}@latch=2"))
    narrow = replace(episode, action_SA=episode.action_SA[:, :3])
    assert "3 real actions, and" in CorrectedPlans().unfit(of(narrow))
    with pytest.raises(ValueError, match=r"cannot be tried again, as .* is recorded .by another environment"):
        CorrectedPlans()(replace(of(episode), source=f"{PLANS}@latch=2"))
    crashed = next(e for n in range(40) if (e := played(n, drawn(n))).terminated)
    with pytest.raises(ValueError, match="record a better policy"):
        CorrectedPlans(factors=())(of(crashed))


class Replanning(MergingPlans):
    """It answers otherwise, and writes into what it is given."""

    answer = staticmethod(lambda plan: plan)

    def replanned(self, plan, factor):
        plan *= factor
        return self.answer(plan)


def of_own(monkeypatch, answer):
    monkeypatch.setattr(Replanning, "answer", staticmethod(answer))
    source = f"{__name__}:Replanning"
    safe = next(e for n in range(40) if not (e := played(n, drawn(n), source)).terminated)
    return Recording(source=source, episodes=(safe,))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda plan: plan[:3], r"a ndarray of shape \[3\]"),
        (lambda plan: plan * np.nan, "a plan with nan or inf"),
        (lambda plan: None, "None"),
        (lambda plan: "fast", "'fast'"),
        (lambda plan: 1.0, "1.0"),
    ],
)
def test_an_environment_that_returns_no_plan_is_told(monkeypatch, answer, said):
    with pytest.raises(ValueError, match=rf"Replanning\.replanned returned {said}; it must return a plan like the one"):
        CorrectedPlans()(of_own(monkeypatch, answer))


def test_recorded_plans_stay_as_they_are_and_what_is_kept_is_what_is_played(monkeypatch):
    recording = of_own(monkeypatch, lambda plan: plan + 7)
    before = recording.episodes[0].action_SA.copy()
    monkeypatch.setattr(Replanning, "answer", staticmethod(lambda plan: 40 * plan))
    found, _ = CorrectedPlans(factors=(0.0, 2.0))(recording)
    assert np.array_equal(recording.episodes[0].action_SA, before)
    assert max(np.abs(one.action_SA).max() for one in found.episodes) <= 1
    world = Environment(recording.source)
    world.reset(Task(id="", source=recording.source, seed=recording.episodes[0].seed), 0)
    assert np.array_equal(world.replanned(before[0], 2.0), np.clip(80 * before[0], -1, 1))


def pendulum():
    source = "Pendulum-v1"
    return Recording(source=source, episodes=(played(0, [np.zeros(1, np.float32)] * 2, source),))


@pytest.mark.parametrize("setting", [{"factors": (-0.5,)}, {"factors": (math.inf,)}, {"margin": -1.0}])
def test_corrections_that_are_none_are_refused(setting):
    with pytest.raises(ValueError, match="0 or above"):
        CorrectedPlans(**setting)
