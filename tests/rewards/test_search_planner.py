"""AI-SearchPlanner: gain, plausibility and price of a plan, and the frontier that the price traces."""

from dataclasses import replace

import pytest

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.recipes.papers.agents.ai_searchplanner import ai_searchplanner
from gimbal.records import Acted
from gimbal.rewards.scoring import score
from gimbal.rewards.tool_calls import ToolCalls
from gimbal.rewards.working_steps import WorkingSteps

SOUND, GUESS = "<think>10+20=30 30+3=33</think><answer>33</answer>", "<answer>33</answer>"
WRONG, LONG = "<think>10+20=31 31+3=34</think>", "<think>10+20=30 30+3=33 33+0=33 33+0=33 33+0=33 33+0=33</think>"


def called(group, *calls):
    """The group whose episodes made so many calls, each answered in a turn of its own."""
    episodes = [
        replace(episode, acts=tuple(Acted(turn, 1, 0, 0.0) for turn in range(count)))
        for episode, count in zip(group.episodes, calls, strict=True)
    ]
    return replace(group, episodes=tuple(episodes))


def planned(group_of, process=0.2, price=0.1):
    gain, unsound, spared = ai_searchplanner().rewards
    rewards = (
        gain,
        WorkingSteps(**{**vars(unsound), "weight": -process}),
        ToolCalls(**{**vars(spared), "weight": price}),
    )
    group = group_of(SOUND, GUESS, WRONG, LONG, answer="33", columns={"question": "What is the total after 3 terms?"})
    return score(called(group, 2, 0, 2, 6), rewards)


def test_by_hand(group_of):
    """1 for the gain of a plan that the frozen answerer can use, -0.2 for an unsound one, 0.1 (1 - calls / 8)."""
    sound, guess, wrong, long = (rollout.score for rollout in planned(group_of).rollouts)
    assert sound == pytest.approx(1 + 0.1 * 6 / 8) and long == pytest.approx(1 + 0.1 * 2 / 8)
    assert guess == pytest.approx(-0.2 + 0.1) and wrong == pytest.approx(-0.2 + 0.1 * 6 / 8)


def test_reduces_to_the_outcome_without_process_and_price(group_of):
    scored = planned(group_of, process=0.0, price=0.0)
    assert [rollout.score for rollout in scored.rollouts] == [1, 0, 0, 1]
    advantage = GroupNormalized()(pack([scored]))[:, 0]
    assert advantage[0] == advantage[3] and advantage[1] == advantage[2]


def test_a_large_price_makes_no_plan_the_best(group_of):
    scores = [rollout.score for rollout in planned(group_of, price=10.0).rollouts]
    assert max(scores) == scores[1]
