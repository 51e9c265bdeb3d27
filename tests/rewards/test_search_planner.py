"""AI-SearchPlanner: gain, plausibility and price of a plan, and the frontier that the price traces."""

import pytest

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.recipes.papers.agents.ai_searchplanner import ai_searchplanner
from gimbal.rewards.scoring import score
from gimbal.rewards.working_steps import WorkingSteps

SOUND, GUESS = "<think>10+20=30 30+3=33</think><answer>33</answer>", "<answer>33</answer>"
WRONG, LONG = "<think>10+20=31 31+3=34</think>", "<think>10+20=30 30+3=33 33+0=33 33+0=33 33+0=33 33+0=33</think>"


def planned(group_of, process=0.2, price=0.1):
    gain, unsound, spared = ai_searchplanner().rewards
    rewards = (
        gain,
        WorkingSteps(**{**vars(unsound), "weight": -process}),
        WorkingSteps(**{**vars(spared), "weight": price}),
    )
    group = group_of(SOUND, GUESS, WRONG, LONG, answer="33", columns={"question": "What is the total after 3 terms?"})
    return score(group, rewards)


def test_by_hand(group_of):
    """1 for the gain of a plan that the frozen answerer can use, -0.2 for an unsound one, 0.1 (1 - steps / 8)."""
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


def test_spared_by_hand_and_its_bounds(group_of):
    reward = WorkingSteps(measure="spared", separator=" ", most=4)
    assert reward(group_of(SOUND, GUESS, LONG)) == [0.5, 1.0, 0.0]
    with pytest.raises(ValueError, match="most"):
        WorkingSteps(most=0)
