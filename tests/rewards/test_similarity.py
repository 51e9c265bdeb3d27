"""Dense rewards in place of equality, and the mixture of form and correctness that changes with the step (SMILES-GRPO)."""

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.reward_shaping.added_reward import AddedReward
from gimbal.controllers.linear import Linear
from gimbal.ops import philox
from gimbal.records import TrainBatch
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.similarity import Similarity, edit_distance

WORDS = ("abcd", "abdc", "dcba", "abc", "abcde", "xyz", "", "aabbccdd")


def said(*answers):
    return [f"<answer>{answer}</answer>" for answer in answers]


def test_reduces_to_the_sparse_reward_with_equality(group_of):
    group = group_of(*said(*WORDS), "no answer", answer="abcd")
    exact = ExactAnswer()(group)
    assert Similarity(measure="equal")(group) == exact
    for measure in ("tanimoto", "edit"):
        assert Similarity(measure=measure, least=1.0)(group) == exact


def test_tanimoto_by_hand(group_of):
    # abdc to abcd: 4/4 letters; pairs {ab, bd, dc} and {ab, bc, cd} 1/5; triples 0/4
    assert Similarity()(group_of(*said("abdc"), answer="abcd")) == [pytest.approx((1 + 0.2 + 0) / 3)]
    assert Similarity(grams=(2,))(group_of(*said("abab"), answer="ab")) == [pytest.approx(1 / 3)]  # ab ba ab to ab


def test_edit_by_hand(group_of):
    assert [edit_distance(a, b) for a, b in (("kitten", "sitting"), ("", "ab"), ("ab", ""), ("ab", "ab"))] == [
        3,
        2,
        2,
        0,
    ]
    scores = Similarity(measure="edit")(group_of(*said("abc", "xyz"), answer="abcd"))
    assert scores == [pytest.approx(0.75), 0.0]


@pytest.mark.parametrize("measure", ["tanimoto", "edit", "equal"])
def test_it_lies_in_0_to_1_and_only_the_answer_itself_has_1(group_of, measure):
    stream = philox(0, "similarity")
    words = {"".join(stream.choice(list("ab"), size=int(stream.integers(1, 7)))) for _ in range(60)} - {"abba"}
    scores = Similarity(measure=measure)(group_of(*said(*words, "abba"), answer="abba"))
    assert all(0 <= score < 1 for score in scores[:-1]) and scores[-1] == 1.0


def test_texts_of_equal_letters_are_not_the_answer(group_of):
    assert 0.99 < Similarity(grams=(1,))(group_of(*said("ba"), answer="ab"))[0] < 1.0


def test_tasks_without_an_answer_and_answers_shorter_than_the_grams(group_of):
    assert Similarity()(group_of("<answer>4</answer>", answer=None)) == [None]
    assert Similarity(grams=(3,))(group_of(*said("12"), answer="34")) == [0.0]
    for wrong in ({"grams": ()}, {"grams": (0,)}, {"least": 2.0}):
        with pytest.raises(ValueError, match="Similarity"):
            Similarity(**wrong)


def test_fewer_groups_without_a_difference_than_with_equality(group_of):
    """What it is for: of wrong answers some are better."""
    stream = philox(1, "groups")
    flat = {"tanimoto": 0, "equal": 0}
    for _ in range(50):
        words = ["".join(stream.permutation(list("gimbal"))) for _ in range(4)]
        for measure in flat:
            flat[measure] += len(set(Similarity(measure=measure)(group_of(*said(*words), answer="gimbal")))) == 1
    assert flat["equal"] > 40 and flat["tanimoto"] < 5


def rows():
    mask_NS = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]]).bool()
    reward_NS = torch.zeros(4, 3)
    reward_NS[0, 2], reward_NS[1, 0] = 1.0, 0.25
    form_N, right_N = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([1.0, 0.25, 0.0, 0.0])
    facts = {"score/form": form_N, "score/right": right_N, "score/error": torch.ones(4)}
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, group_N=torch.zeros(4).long(), facts=facts)


def test_added_reward_of_weight_0_leaves_the_rewards():
    assert torch.equal(AddedReward(name="form")(rows()), rows().reward_NS)


def test_added_reward_sits_on_the_last_counted_decision():
    added = AddedReward(name="form", weight=0.5)(rows())
    assert added.tolist() == [[0, 0, 1.5], [0.25, 0, 0], [0, 0.5, 0], [0, 0, 0]]
    assert torch.allclose(AddedReward(weight=2.0)(rows()).sum(-1), torch.tensor([5.0, 0.75, 2.0, 0.0]))
    with pytest.raises(ValueError, match="AddedReward"):
        AddedReward(name="absent")(rows())


def test_added_reward_equals_the_same_weight_on_the_reward():
    summed = rows().with_columns({"reward_NS": AddedReward(name="form", weight=0.3)(rows())})
    weighed = torch.zeros(4, 3)
    weighed[0, 2], weighed[1, 0], weighed[2, 1] = 1.3, 0.25, 0.3
    plain = rows().with_columns({"reward_NS": weighed})
    torch.testing.assert_close(GroupNormalized()(summed), GroupNormalized()(plain), atol=1e-6, rtol=0)


def test_linear_goes_straight_and_stays():
    rule = Linear(initial=-0.5, final=0.0, steps=30)
    state, values = rule.init(), []
    for _ in range(40):
        values.append(state["value"])
        state = rule.update(state, {})
    assert values[0] == -0.5 and values[15] == pytest.approx(-0.25) and values[30:] == [0.0] * 10
    assert Linear(initial=3.0, final=1.0, steps=0).init()["value"] == 1.0
    with pytest.raises(ValueError, match="Linear"):
        Linear(steps=-1)


def test_the_published_mixture_of_form_and_correctness():
    """0.5 max(0, 1 - t/30) form + 0.5 min(2, 1 + t/30) correct, from a full correctness and two moving weights."""
    form, less = Linear(initial=0.5, final=0.0), Linear(initial=-0.5, final=0.0)
    a, b = form.init(), less.init()
    for step in range(60):
        assert a["value"] == pytest.approx(0.5 * max(0.0, 1 - step / 30))
        assert 1 + b["value"] == pytest.approx(0.5 * min(2.0, 1 + step / 30))
        a, b = form.update(a, {}), less.update(b, {})
