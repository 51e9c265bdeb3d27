"""Agents that act at once: an episode has a row of each, with its own rewards, end and last observation."""

import pickle
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "environments"))
import several_agents

from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.transitions import each
from gimbal.engines.base import Request
from gimbal.engines.early_stop import EarlyStop
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import Drop, Group

WALKS = f"{several_agents.__file__}:Walks"
POLICY = Categorical(observations=3, actions=4).load(1)


def made(policy=POLICY, **settings):
    engine = Episodes(**settings).start(policy)
    engine.load(0, policy.state_dict())
    return engine


def asked(index, environment=WALKS, most=100, temperature=1.0):
    sampling = StepSampling(max_length=most, temperature=temperature)
    return Request(group=index, task=Gymnasium(environment=environment)[index], sample=0, sampling=sampling, seed=0)


def played(count=3, environment=WALKS, policy=POLICY, most=100, engine=None, **settings):
    engine = engine or made(policy, **settings)
    for index in range(count):
        engine.submit(asked(index, environment, most))
    return rest_of(engine)


def rest_of(engine):
    done = {}
    while engine.in_flight:
        done |= {finished.key: finished.outcome for finished in engine.step()}
    return [done[key] for key in sorted(done)]


def same(one, other):
    return one.stop == other.stop and all(
        torch.equal(a, b)
        for a, b in (
            (one.decisions.observation_NSO, other.decisions.observation_NSO),
            (one.decisions.action_NSA, other.decisions.action_NSA),
            (one.decisions.final_NO, other.decisions.final_NO),
            (one.behavior_S, other.behavior_S),
            (one.reward_S, other.reward_S),
        )
    )


def test_each_agent_has_a_row_as_long_as_it_acted():
    for episode in played():
        assert episode.apart and [row.row for row in episode.rows] == [0, 1, 2]
        assert [row.length for row in episode.rows] == [2, 4, 3]
        assert [row.stop for row in episode.rows] == ["terminated", "truncated", "terminated"]
        assert [row.reward_S.tolist() for row in episode.rows] == [[1, 2], [11, 12, 13, 14], [21, 22, 23]]
        assert [row.cost_S.tolist() for row in episode.rows] == [[1.0] * row.length for row in episode.rows]
        assert episode.earned == 3 + 50 + 66 and episode.length == 9
        assert {row.scores["cost"] for row in episode.rows} == {9.0}  # of all
        for agent, row in enumerate(episode.rows):
            row.validate()
            steps, moves = row.decisions, row.decisions.action_NSA[0, :, 0].tolist()
            wanted = [[agent, step, move] for step, move in enumerate([-1, *moves])]
            assert steps.observation_NSO[0].tolist() == wanted[:-1] and steps.final_NO[0].tolist() == wanted[-1]
            assert steps.terminated_N.tolist() == [agent != 1]


def test_log_probs_are_those_of_the_one_policy_and_agents_draw_each_for_themselves():
    episodes = played(count=20)
    for episode in episodes:
        for row in episode.rows:
            logprob_S = POLICY.evaluate(row.decisions).logprob_NS[0]
            assert torch.allclose(logprob_S, row.behavior_S, atol=1e-6)
    first = [[int(row.decisions.action_NSA[0, 0, 0]) for row in episode.rows] for episode in episodes]
    assert sum(a == b for a, b, _ in first) < 15 and len({a for a, _, _ in first}) == 4


def test_a_batch_has_each_agents_own_rewards_and_bootstraps_the_one_that_was_cut_off():
    batch = pack([Group(index=i, task=e.task, episodes=(e,)) for i, e in enumerate(played(2))])
    assert batch.return_N.tolist() == [3, 50, 66] * 2 and batch.group_N.tolist() == [0] * 3 + [1] * 3
    assert batch.episode_N.tolist() == [*range(6)] and not batch.several
    single, _ = each(batch)
    assert single.decisions.ended_NS[:, 0].tolist() == [False, True, *[False] * 4, False, False, True] * 2


@pytest.mark.parametrize("segment", [1, 2, 3])
def test_segments_are_of_those_that_are_still_there(segment):
    count = -(-4 // segment)
    rows = [row for episode in played(count, segment=segment, slots=1) for row in episode.rows]
    own = {agent: [row for row in rows if row.decisions.observation_NSO[0, 0, 0] == agent] for agent in range(3)}
    for agent, reward in ((0, [1, 2]), (1, [11, 12, 13, 14]), (2, [21, 22, 23])):
        assert [r for row in own[agent] for r in row.reward_S.tolist()] == reward
        assert [row.stop for row in own[agent][:-1]] == ["paused"] * (len(own[agent]) - 1)
        assert own[agent][-1].stop == ("truncated" if agent == 1 else "terminated")
    told = [row.scores["return"] for row in rows if row.scores]
    assert set(told) == {119.0}, "of all agents, and only where the last one ends"


def test_our_own_limit_cuts_those_off_that_would_have_gone_on():
    (episode,) = played(1, most=2)
    assert [row.stop for row in episode.rows] == ["terminated", "truncated", "truncated"]
    assert [row.length for row in episode.rows] == [2, 2, 2]


@pytest.mark.parametrize(("segment", "at"), [(0, 1), (0, 3), (2, 3), (3, 2)])
def test_a_resumed_engine_goes_on_to_the_same_bits(segment, at):
    engine = made(segment=segment, slots=2)
    for index in range(6):
        engine.submit(asked(index))
    for _ in range(at):
        engine.step()
    state = pickle.loads(pickle.dumps(engine.state_dict()))
    resumed = made(segment=segment, slots=2)
    resumed.load_state_dict(state)
    rest, again = rest_of(engine), rest_of(resumed)
    assert len(rest) == len(again)
    for one, other in zip(rest, again, strict=True):
        assert len(one.rows) == len(other.rows) and all(map(same, one.rows, other.rows))


def test_an_episode_does_not_depend_on_what_is_played_beside_it():
    alone, crowded = played(3, slots=1), played(3, slots=8)
    for one, other in zip(alone, crowded, strict=True):
        for a, b in zip(one.rows, other.rows, strict=True):
            assert torch.equal(a.decisions.action_NSA, b.decisions.action_NSA)
            assert torch.allclose(a.behavior_S, b.behavior_S, atol=1e-6)  # batches of other sizes round otherwise


def test_vectors_of_different_lengths_are_recorded_as_drawn():
    policy = Gaussian(observations=6, actions=2).load(2)
    (episode,) = played(1, f"{several_agents.__file__}:Hunt", policy)
    assert [row.decisions.action_NSA.shape for row in episode.rows] == [(1, 3, 2)] * 3
    assert [row.decisions.observation_NSO[0, 0].tolist()[-2:] for row in episode.rows] == [[1, 0], [1, 0], [0, 1]]


def test_noise_that_lasts_does_so_for_each_agent_by_itself():
    policy = SquashedGaussian(observations=6, actions=2).load(2)
    (episode,) = played(1, f"{several_agents.__file__}:Hunt", policy, correlation=1.0)
    noise = [torch.atanh(row.decisions.action_NSA[0].clamp(-0.999, 0.999)) for row in episode.rows]
    assert not torch.allclose(noise[0][0], noise[1][0], atol=0.05)
    assert all((own[1] - own[0]).abs().max() < 0.5 for own in noise)  # one push, and a mean that hardly moves


def test_what_breaks_is_told_with_the_rows_so_far():
    (episode,) = played(1, f"{several_agents.__file__}:Breaks")
    assert "it broke" in episode.error and episode.apart and [row.length for row in episode.rows] == [1, 1, 1]


def test_a_cancelled_request_counts_all_that_was_drawn():
    engine = made()
    engine.submit(asked(0))
    engine.step()
    engine.step()
    cut = engine.cancel((0, 0))
    assert isinstance(cut, Drop) and cut.drawn == 6
    engine.submit(asked(1))
    assert len(rest_of(engine)[0].rows) == 3  # in the environment that was given back


def test_early_stops_are_for_one_agent():
    policy = SquashedGaussian(observations=6, actions=2, judges=2).load(0)
    with pytest.raises(ValueError, match=r"EarlyStop is for one: set engine.early_stop=none"):
        played(1, f"{several_agents.__file__}:Hunt", policy, early_stop=EarlyStop())
