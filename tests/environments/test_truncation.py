"""What was observed at a limit is the episode's own last observation, whatever cut it off, and what came next is bootstrapped from it.

The environment counts its steps in the observation, earns 10^t, and shows 777 where it is cut off and 999 where it ends: neither is
ever shown elsewhere, and the first observation of the next episode is 0.
"""

import gymnasium
import numpy as np
import pytest
import torch

from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.transitions import AHEAD, FRESH, MOVE, Transitions, each
from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.engines.live_episode import RETURN
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.dqn import DQN
from gimbal.policies.control import StepSampling
from gimbal.policies.greedy import Greedy
from gimbal.records import Group

CUT, END, LENGTH = 777.0, 999.0, 5


class Marked(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, truncates=True, terminates=False):
        self.truncates, self.terminates = truncates, terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.0], np.float32), {}

    def step(self, action):
        self.steps += 1
        last = self.steps == LENGTH
        seen = float(self.steps)
        if last and (self.terminates or self.truncates):
            seen = END if self.terminates else CUT
        ended, cut = last and self.terminates, last and self.truncates and not self.terminates
        return np.array([seen], np.float32), float(10 ** (self.steps - 1)), ended, cut, {}


class CutByWrapper(gymnasium.Wrapper):
    """The last observation of an episode that a wrapper cut off, marked where the wrapper's limit is."""

    def step(self, action):
        seen, reward, ended, cut, info = self.env.step(action)
        return (np.array([CUT], np.float32) if cut else seen), reward, ended, cut, info


def by_time_limit():
    return CutByWrapper(gymnasium.wrappers.TimeLimit(Marked(truncates=False), LENGTH))


WAYS = {
    "its own limit": lambda: Marked(),
    "a time limit around it": by_time_limit,
    "a wrapper that resets by itself at the next step": lambda: gymnasium.wrappers.Autoreset(Marked()),
    "an end": lambda: Marked(terminates=True),
    "an end, with a wrapper that resets by itself": lambda: gymnasium.wrappers.Autoreset(Marked(terminates=True)),
}


@pytest.fixture(params=WAYS)
def marked(request):
    gymnasium.register("Marked-v0", WAYS[request.param])
    yield request.param
    del gymnasium.registry["Marked-v0"]


def played(segment, count, max_length=100, slots=1):
    policy = Greedy(observations=1, actions=2, hidden=(4,)).load(0)
    engine = Episodes(slots=slots, segment=segment).start(policy)
    engine.load(0, policy.state_dict())
    tasks, rollouts = Gymnasium(environment="Marked-v0"), []
    for index in range(count):
        engine.submit(
            Request(group=index, task=tasks[index], sample=0, sampling=StepSampling(max_length=max_length), seed=0)
        )
        while engine.in_flight:
            rollouts += [finished.rollout for finished in engine.step()]
    return rollouts


def batch_of(rollouts):
    return pack([Group.of(i, rollout.task, [rollout]) for i, rollout in enumerate(rollouts)])


def flat(batch):
    steps = batch.decisions
    return [x.flatten().tolist() for x in (steps.observation_NSO, batch.reward_NS, steps.final_NO, steps.ended_NS)]


@pytest.mark.parametrize("segment", [0, 1, 2, 3, 5, 8])
def test_single_decisions_of_episodes_and_of_segments_are_the_same(marked, segment):
    rollouts = played(segment, count=2 if segment == 0 else 10)
    single, _ = each(batch_of(rollouts))
    last = END if "end" in marked else CUT
    seen, reward, after, ended = (x[: 2 * LENGTH] for x in flat(single))
    assert seen == [0, 1, 2, 3, 4] * 2, "the marked observation is nobody's first"
    assert after == [1, 2, 3, 4, last] * 2, "and never the observation of a reset"
    assert reward == [1, 10, 100, 1000, 10000] * 2
    assert ended == [False, False, False, False, last == END] * 2
    returns = [rollout.scores[RETURN] for rollout in rollouts if rollout.scores]
    assert set(returns) == ({11111.0} if segment else set())


def test_our_own_limit_cuts_the_episode_and_keeps_its_last_observation():
    gymnasium.register("Marked-v0", lambda: Marked())
    try:
        for segment, count in ((0, 2), (2, 4)):
            single, _ = each(batch_of(played(segment, count, max_length=3)))
            seen, _, after, ended = flat(single)
            assert seen == [0, 1, 2] * 2 and after == [1, 2, 3] * 2 and not any(ended)
    finally:
        del gymnasium.registry["Marked-v0"]


@pytest.mark.parametrize(("segment", "n"), [(0, 1), (0, 3), (0, 9), (2, 3), (1, 3)])
def test_n_steps_stop_at_the_limit_and_bootstrap_from_what_was_seen_there(marked, segment, n):
    """Every row of a minibatch against sums that are taken here, one by one; ``gamma`` .5."""
    store = Transitions(minibatch=400, update_to_data=1.0, learning_starts=9, n=n).start(0)
    batch = store.take(batch_of(played(segment, count=2 if segment == 0 else 2 * -(-LENGTH // segment))))
    drawn = batch.select((batch.facts[MOVE] != FRESH).nonzero()[:, 0])
    assert len(drawn.mask_NS) == 400 and (AHEAD in drawn.facts) == (n > 1)
    last = END if "end" in marked else CUT
    shown = [0.0, 1.0, 2.0, 3.0, 4.0, last]
    reward_K, discount_K = DQN(gamma=0.5).backed(drawn)
    row_ends = [min(LENGTH, segment * (t // segment + 1)) if segment else LENGTH for t in range(LENGTH)]
    found = set()
    for k, (start, after) in enumerate(
        zip(
            drawn.decisions.observation_NSO.flatten().tolist(), drawn.decisions.next_NSO.flatten().tolist(), strict=True
        )
    ):
        t = int(start)
        reached = min(t + n, row_ends[t])
        assert after == shown[reached], (t, n)
        assert float(reward_K[k]) == pytest.approx(sum(0.5**i * 10 ** (t + i) for i in range(reached - t)))
        ended = reached == LENGTH and last == END
        assert float(discount_K[k]) == pytest.approx(0.0 if ended else 0.5 ** (reached - t))
        found.add(t)
    assert found == set(range(LENGTH))


def test_a_ring_that_was_written_over_never_runs_two_rows_into_one():
    """Capacity 7 with episodes of 5: places are taken again and again, from the middle of rows."""
    gymnasium.register("Marked-v0", lambda: Marked())
    try:
        store = Transitions(capacity=7, minibatch=64, update_to_data=1.0, learning_starts=0, n=4).start(0)
        for count in (1, 2, 1, 3):
            batch = store.take(batch_of(played(0, count)))
            drawn = batch.select((batch.facts[MOVE] != FRESH).nonzero()[:, 0])
            start_K, after_K = drawn.decisions.observation_NSO.flatten(), drawn.decisions.next_NSO.flatten()
            reached_K = torch.where(after_K == CUT, LENGTH, after_K)
            ahead_K = (~drawn.facts[AHEAD].isnan()).sum(-1)[:, 0]
            assert torch.equal(reached_K - start_K, ahead_K.float()), "as many rewards as steps"
            assert store.held == min(7, store.entered)
            # Fewer than four only at the limit.
            assert bool(((ahead_K == 4) | (reached_K == LENGTH)).all())
    finally:
        del gymnasium.registry["Marked-v0"]
