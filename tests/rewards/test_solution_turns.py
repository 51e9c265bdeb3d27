"""Turns on the way to the answer, by hand, and beside an environment that pays."""

from dataclasses import replace

import pytest
import torch

from gimbal.dataflow.packing import pack
from gimbal.rewards.scoring import score
from gimbal.rewards.solution_turns import SolutionTurns

LOOK, WORK = "print(open('ji').read())", "print(sum(map(int,open('nk').read().split())))"
WHOLE = f"${LOOK}nk${WORK}47<answer>47</answer>"
COLUMNS = {"programs": [LOOK, WORK]}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (WHOLE, 3),
        (f"${LOOK}nk${WORK}47<answer>48</answer>", 2),
        (f"${LOOK}nk${WORK}47", 2),  # cut off
        (f"${LOOK}nk<answer>47</answer>", 1),  # it guessed the rest
        (f"${LOOK}nk${WORK}47${WORK}47<answer>47</answer>", 2),  # once too often, so the third turn is not the answer's
        (f"${WORK}47<answer>47</answer>", 0),  # not the next step, though it is of the solution
        (f"So: ${LOOK}nk", 0),
        ("<answer>47</answer>", 0),
        ("", 0),
        (f"${LOOK};x=1nk${WORK}47<answer>47</answer>", 3),  # nothing tells where a call ends
        (f"${LOOK}$5${WORK}47<answer>47</answer>", 1),  # what was printed looks like a call
    ],
)
def test_by_hand(group_of, text, right):
    assert SolutionTurns()(group_of(text, answer="47", columns=COLUMNS)) == [right]


def test_what_only_measures_leaves_the_return_of_the_environment(group_of):
    """It is trained on as it is reported: the score, 0 here, and what the environment paid."""
    group = group_of(WHOLE, "<answer>1</answer>", answer="47", columns=COLUMNS)
    paid = tuple(
        episode.map(
            lambda row, earned=earned: replace(
                row, reward_S=torch.tensor([0.0, earned])[: row.length] + 0 * row.reward_S
            )
        )
        for episode, earned in zip(group.episodes, (1.0, 0.25), strict=True)
    )
    scored = score(replace(group, episodes=paid), (SolutionTurns(),))
    assert [episode.earned for episode in scored.episodes] == [1.0, 0.25] == pack([scored]).return_N.tolist()
    assert pack([scored]).facts["score/right_turns"].tolist() == [3, 0]
    weighed = score(replace(group, episodes=paid), (SolutionTurns(weight=0.1),))
    expected = pytest.approx([1.3, 0.25])
    assert [episode.earned for episode in weighed.episodes] == expected and pack(
        [weighed]
    ).return_N.tolist() == expected


@pytest.mark.parametrize("column", [LOOK, {LOOK: WORK}, [1, 2], 7, [LOOK, ""], [" "], [LOOK, None], {LOOK}])
def test_a_solution_that_is_no_list_of_calls_is_refused(group_of, column):
    with pytest.raises(ValueError, match=r"column 'programs', which is .* in task t1: give it a list of texts"):
        SolutionTurns().accepts(group_of("", columns={"programs": column}).task)
    SolutionTurns().accepts(group_of("", columns={"programs": (LOOK, WORK)}).task)


def test_tasks_without_a_solution_and_calls_without_a_beginning_are_refused(group_of):
    with pytest.raises(ValueError, match="column 'programs', which task t1 lacks"):
        SolutionTurns().accepts(group_of("").task)
    with pytest.raises(ValueError, match="calls is empty"):
        SolutionTurns(calls="")
