"""Which answers of a group are the same."""

from gimbal.rewards.answer_kind import AnswerKind
from gimbal.rewards.scoring import score


def test_kinds_of_answers(group_of):
    texts = ("<answer>1</answer>", "no", "<answer>2</answer>", "<answer> 1 </answer>", "")
    scored = score(group_of(*texts), (AnswerKind(),))
    assert [r.scores["kind"] for r in scored.rollouts] == [0, 1, 2, 0, 1] and scored.score_G.sum() == 0
