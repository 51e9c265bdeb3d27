"""One of several right answers, and the tokens of a forward pass."""

import pytest
import torch
from made import group, rollout

from gimbal.policies.commits import REVIEW, WHERE, Commits
from gimbal.records import Task
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.remasked import Remasked
from gimbal.rewards.tokens_per_pass import TokensPerPass


def commits(place, token, at, end=-1):
    count = torch.tensor([len(place)])
    return Commits(
        prompt_NP=torch.tensor([[5]]),
        prompt_N=torch.tensor([1]),
        place_NS=torch.tensor([place]),
        token_NS=torch.tensor([token]),
        pass_NS=torch.tensor([at]),
        seen_NS=torch.full((1, len(place)), 4),
        length_N=count,
        threshold_N=torch.tensor([0.9]),
        spread_N=torch.tensor([0.0]),
        keep_N=torch.tensor([0.5]),
        mask=9,
        end=end,
    )


def test_any_of_the_answers_is_right():
    task = Task(id="t", columns={"answers": ["12", "21"], "other": ["3"]})
    texts = group(task, *(rollout(task, text=text) for text in ("12", " 21 ", "1", "122", "3")))
    assert OneOf()(texts) == [1, 1, 0, 0, 0] and OneOf(column="other")(texts) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("given", [None, "12", [], [1]])
def test_a_task_without_answers_is_refused_before_the_first_step(given):
    with pytest.raises(ValueError, match=r"column answers.*ExactAnswer"):
        OneOf().accepts(Task(id="t", columns={} if given is None else {"answers": given}))


def test_tokens_of_a_pass_by_hand():
    three = commits([2, 0, 1, 3], [7, 7, 7, 7], [0, 0, 1, 2])
    drawn = commits([WHERE, 2, 0, WHERE, 1, 3], [0, 7, 7, 0, 7, 7], [0, 0, 0, 1, 1, 1])
    ended = commits([2, 0, 1, 3], [7, 7, 8, 7], [0, 0, 1, 2], end=8)
    made = [rollout(decisions=each) for each in (three, drawn, ended)]
    speed = TokensPerPass()(group(made[0].task, *made))
    assert speed == pytest.approx([4 / 3, 4 / 2, 2 / 3]), "the choice of cells is no token, nor is what follows the end"


def test_other_policies_have_no_passes():
    for reward in (TokensPerPass(), Remasked()):
        with pytest.raises(ValueError, match="MaskedLM"):
            reward(group(rollout().task, rollout()))


def test_cells_that_a_review_masks_are_read_from_the_state_after_it():
    """Two cells are written, both are masked again by the review, and one of them is then written anew, twice masked in all."""
    row = commits(
        [1, 0, REVIEW, 0, 1, 1, 0, REVIEW, 0, 0], [7, 6, 0, 9, 9, 8, 5, 0, 9, 4], [0, 1, 2, 2, 2, 3, 4, 5, 5, 6]
    )
    made = rollout(decisions=row)
    assert Remasked()(group(made.task, made)) == [3.0] and not Remasked().decides
    states = row.states
    assert states.text_ML[:, 1:3].tolist() == [[9, 9], [9, 7], [6, 7], [9, 9], [9, 8], [5, 8], [9, 8]]
    assert states.reviewed_ML.any(-1).tolist() == [False, False, True, False, False, True, False]
    assert int(row.tokens_N) == 2 and int(row.passes_N) == 7


def test_states_are_what_was_written_before():
    both = Commits.stack([commits([2, 0, 1], [7, 6, 8], [0, 0, 1]), commits([3], [4], [0])])
    states = both.states
    assert states.width_M.tolist() == [5, 5, 5]
    assert states.text_ML.tolist() == [[5, 9, 9, 9, 9], [5, 6, 9, 7, 9], [5, 9, 9, 9, 9]]
    assert states.masked_ML[1].tolist() == [False, False, True, False, True]
    assert both.passes_N.tolist() == [2, 1] and both.cost_N.tolist() == [10, 5]
    assert both.select(torch.tensor([1])).shape == (1, 1)
