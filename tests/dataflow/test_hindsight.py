"""Steps that are drawn with another goal: which, from where, what they pay, and that nothing else changes."""

import threading
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from gimbal import recipes
from gimbal.config import Text
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.transitions import FRESH, MOVE, Transitions
from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.engines.live_episode import SUCCESS
from gimbal.environments.goals import Goals
from gimbal.environments.gym import Gymnasium, goals_of
from gimbal.environments.point_reach import PointReach
from gimbal.policies.control import StepSampling
from gimbal.policies.deterministic import Deterministic
from gimbal.records import Group
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

LENGTHS = (4, 1, 6, 5)
SPEC = Transitions(capacity=100, minibatch=400, learning_starts=0, update_to_data=0.2, hindsight=Hindsight())


class Numbered(gymnasium.Env):
    """Reaches (episode, step) and wants what is never reached; the reward is -1, and 0 of the same pair."""

    bonus, judge = 0.0, None
    episodes = 0
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    observation_space = gymnasium.spaces.Dict(
        {
            "observation": gymnasium.spaces.Box(-1e3, 1e3, (3,), np.float32),
            "achieved_goal": gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float32),
            "desired_goal": gymnasium.spaces.Box(-1e3, 1e3, (2,), np.float32),
        }
    )

    def reset(self, *, seed=None, options=None):
        self.episode, self.at = Numbered.episodes, 0
        Numbered.episodes += 1
        return self.seen(), {}

    def seen(self):
        reached = np.array([self.episode, self.at], np.float32)
        return {"observation": np.full(3, 7, np.float32), "achieved_goal": reached, "desired_goal": np.full(2, -9.0)}

    def step(self, action):
        self.at += 1
        reward = -1.0 + self.bonus
        return self.seen(), reward, False, self.at >= LENGTHS[self.episode % 4], {"is_success": self.at == 6}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float((achieved_goal != desired_goal).any())  # of one pair alone


class Ending(Numbered):
    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(-1)


@pytest.fixture(autouse=True)
def numbered():
    Numbered.episodes = 0
    for kind in (Numbered, Ending):
        gymnasium.register(f"{kind.__name__}-v0", kind)
    yield
    for kind in (Numbered, Ending):
        del gymnasium.registry[f"{kind.__name__}-v0"]


def played(count=4, name="Numbered-v0"):
    policy = Deterministic(observations=7, actions=1, hidden=(4,)).load(0)
    engine = Episodes(slots=1).start(policy)
    engine.load(0, policy.state_dict())
    tasks, rollouts = Gymnasium(environment=name), []
    for index in range(count):
        engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=StepSampling(max_length=50), seed=0))
        while engine.in_flight:
            rollouts += [finished.rollout for finished in engine.step()]
    return [Group.of(i, rollout.task, [rollout]) for i, rollout in enumerate(rollouts)]


def drawn(spec=SPEC, name="Numbered-v0", groups=None):
    """What a store draws of four episodes: (reached, wanted) of the steps, and the rows."""
    groups = played(name=name) if groups is None else groups
    store = spec.start(0)
    store.join(groups, 0, lambda group: group)
    batch = store.take(pack(groups))
    rows = batch.select((batch.facts[MOVE] != FRESH).nonzero()[:, 0])
    return store, rows, rows.decisions.final_NO[:, :2], rows.decisions.final_NO[:, 2:4]


def test_goals_lie_where_a_dict_is_flattened_to():
    goals = goals_of("Numbered-v0")
    assert (goals.achieved, goals.desired) == (slice(0, 2), slice(2, 4))
    (group,) = played(1)
    assert group.rollouts[0].decisions.observation_NSO[0, 2].tolist() == [0, 2, -9, -9, 7, 7, 7]


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_those_that_the_same_episode_reached(strategy):
    _, rows, reached, wanted = drawn(replace(SPEC, hindsight=Hindsight(strategy=strategy)))
    given = wanted[:, 0] >= 0
    assert (wanted[~given] == -9).all() and len(rows.reward_NS) == 1200
    assert float(given.float().mean()) == pytest.approx(4 / 5, abs=0.05)
    (episode, step), (of, at) = reached[given].T, wanted[given].T
    assert torch.equal(episode, of)
    last = torch.tensor(LENGTHS)[episode.long()]
    pairs = {(int(e), int(s), int(a)) for e, s, a in zip(episode, step, at, strict=True)}
    within = {
        "future": lambda s, n: range(s, n + 1),
        "final": lambda s, n: [n],
        "episode": lambda s, n: range(1, n + 1),
    }[strategy]
    assert pairs == {(e, s, a) for e, n in enumerate(LENGTHS) for s in range(1, n + 1) for a in within(s, n)}
    if strategy == "future":  # any of those that are left as likely as any other
        third = at[(episode == 2) & (step == 4)]
        assert float((third == last[(episode == 2) & (step == 4)]).float().mean()) == pytest.approx(1 / 3, abs=0.15)


def test_what_a_goal_pays_is_what_the_environment_says_of_it():
    store, rows, reached, wanted = drawn()
    same = (reached == wanted).all(-1)
    assert torch.equal(rows.reward_NS[:, 0], same.float() - 1) and same.any()
    assert store.metrics()["replay/relabelled"] == pytest.approx(float(same.float().mean()))
    assert store.metrics()["replay/unlike"] == 0
    before = rows.decisions.observation_NSO[:, 0]
    assert torch.equal(before[:, 2:4], wanted), "the policy sees the goal that is paid for, before the step and after"
    assert torch.equal(before[:, 0], reached[:, 0]) and torch.equal(before[:, 1] + 1, reached[:, 1])
    assert (before[:, 4:] == 7).all(), "nothing else is another"


def test_an_episode_that_was_cut_off_does_not_end_and_one_with_a_rule_ends_by_it():
    _, rows, _, _ = drawn()
    assert not rows.decisions.terminated_N.any()
    _, rows, reached, wanted = drawn(name="Ending-v0")
    assert torch.equal(rows.decisions.terminated_N, (reached == wanted).all(-1)) and rows.decisions.terminated_N.any()


def test_of_an_episode_that_is_half_overwritten_the_rest_counts():
    """16 steps in 8 places: of the third episode its last three steps are left."""
    _, _, reached, wanted = drawn(replace(SPEC, capacity=8, hindsight=Hindsight(strategy="episode")))
    given = wanted[:, 0] >= 0
    assert {(int(e), int(a)) for e, a in wanted[given]} == {(2, 4), (2, 5), (2, 6), *((3, a) for a in range(1, 6))}
    assert torch.equal(reached[given][:, 0], wanted[given][:, 0])


def test_what_came_in_keeps_its_own_goals():
    store, *_ = drawn()
    assert (store.rows.decisions.final_NO[: store.held, 2:4] == -9).all()
    assert (store.rows.reward_NS[: store.held] == -1).all()


def test_rules_for_one_pair_and_for_many_are_the_same():
    def one(achieved, desired, info):
        return 0.0 if abs(achieved[0] - desired[0]) < 0.5 else -1.0

    def many(achieved, desired, info):
        return (
            -(np.abs(achieved[:, 0] - desired[:, 0]) >= 0.5).astype(float)
            if achieved.ndim > 1
            else one(achieved, desired, info)
        )

    def wrong(achieved, desired, info):  # of the first pair where there are many
        return (
            np.full(len(achieved), one(achieved[0], desired[0], info))
            if achieved.ndim > 1
            else one(achieved, desired, info)
        )

    rng = np.random.default_rng(0)
    pairs = [(rng.random((9, 2)), rng.random((9, 2))) for _ in range(3)]
    found = [
        [Goals("x", slice(0, 2), slice(2, 4), rule, None).reward(*pair).tolist() for pair in pairs]
        for rule in (one, many, wrong)
    ]
    assert found[0] == found[1] == found[2] and len(set(found[0][0])) == 2


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda a, d, i: "far", "x.compute_reward returned 'far'.*; it must return one number"),
        (lambda a, d, i: np.nan, "x.compute_reward returned nan; it must be a finite number"),
        (lambda a, d, i: 1 / 0, "x.compute_reward raises ZeroDivisionError"),
    ],
)
def test_a_rule_that_says_no_number_is_refused(rule, said):
    with pytest.raises(ValueError, match=said):
        Goals("x", slice(0, 2), slice(2, 4), rule, None).reward(np.zeros((3, 2)), np.zeros((3, 2)))


def test_a_rule_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("gimbal.environments.goals.DEADLINE", 0.05)
    asleep = threading.Event()
    with pytest.raises(ValueError, match=r"x\.compute_reward did not answer within 0\.05 s"):
        Goals("x", slice(0, 2), slice(2, 4), lambda a, d, i: asleep.wait(), None).reward(
            np.zeros((3, 2)), np.zeros((3, 2))
        )
    asleep.set()


def test_a_rule_that_reads_info_is_told_that_it_is_empty():
    with pytest.raises(ValueError, match=r"KeyError: 'energy'.*; it is called with an empty info"):
        goals = Goals("x", slice(0, 2), slice(2, 4), lambda a, d, i: i["energy"], None)
        goals.reward(np.zeros((3, 2)), np.zeros((3, 2)))


def test_an_environment_that_pays_otherwise_than_its_rule_is_refused(monkeypatch):
    monkeypatch.setattr(Numbered, "bonus", 0.25)
    with pytest.raises(ValueError, match="paid 16 of 16 steps otherwise than its compute_reward says"):
        drawn()


def test_success_is_what_the_environment_says_of_the_last_step():
    assert [group.rollouts[0].scores for group in played()] == [{SUCCESS: float(n == 6)} for n in LENGTHS]


def small(name="her", **changes):
    text = {key: Text(value) for key, value in changes.items()}
    return recipes.load(name, {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16, **text})


def stepped(run, steps=3):
    trainer = Trainer(run)
    found = [deterministic(trainer.advance()[0]) for _ in range(steps)]
    weights = [x.clone() for module in trainer.learner.models.modules.values() for x in module.state_dict().values()]
    trainer.close()
    return found, weights


def test_no_goals_is_the_run_without_hindsight_bit_for_bit(single_thread):
    none, without, four = (
        stepped(small(**change))
        for change in ({"store.hindsight.goals": "0"}, {"store.hindsight": "none"}, {"store.hindsight.goals": "4"})
    )
    assert all(map(torch.equal, none[1], without[1])) and not all(map(torch.equal, four[1], without[1]))


def test_cloning_for_goals_that_were_reached_reads_no_reward(single_thread, monkeypatch):
    metrics, weights = stepped(small("gcsl"))
    monkeypatch.setattr(PointReach, "compute_reward", lambda self, achieved, desired, info: 7.0 + 0 * achieved[..., 0])
    others, same = stepped(small("gcsl"))
    assert metrics[-1]["reward/mean"] != others[-1]["reward/mean"] and all(map(torch.equal, weights, same))
    assert not all(map(torch.equal, weights, stepped(small("gcsl", **{"store.hindsight.goals": "0"}))[1]))


@pytest.mark.parametrize("name", ["her", "gcsl"])
def test_a_run_with_hindsight_goes_on_to_the_same_bits(name, tmp_path, single_thread):
    run = small(name, **{"store.capacity": "70"})
    trainer = Trainer(run)
    trainer.advance(), trainer.advance(), trainer.advance()
    saved = trainer.save(tmp_path, {})
    resumed = Trainer(run, saved)
    for _ in range(3):
        assert deterministic(resumed.advance()[0]) == deterministic(trainer.advance()[0])
    pairs = zip(trainer.learner.models.policy.parameters(), resumed.learner.models.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    trainer.close(), resumed.close()
