"""Relations that stand in no prompt, and their composition: what is held out is never asked in training."""

import pytest

from gimbal.environments.hops import ENTITIES, FAMILIES, RELATIONS, Hops, questions, relations


@pytest.mark.parametrize("kind", ["within", "across"])
def test_the_answer_is_where_the_hops_lead(kind):
    known = relations(0)
    for index in range(200):
        task = Hops(kinds=(kind,))[index]
        (one, other), start = task.prompt.split("\n")
        at = known[one][start]
        assert task.answer == task.columns["completion"] == at + known[other][at]
        assert any({one, other} <= set(names) for names in FAMILIES) == (kind == "within")
        assert task.source == kind


def test_a_third_of_the_pairs_across_is_held_out_and_every_relation_is_trained_in_both_places():
    trained, held = set(questions("across", "train")), set(questions("across", "held_out"))
    assert (len(trained), len(held)) == (12, 6) and not trained & held
    for place in (0, 1):
        assert {pair[place] for pair in trained} == {pair[place] for pair in held} == set(RELATIONS)
    assert {Hops(kinds=("across",), split="held_out")[index].prompt[:2] for index in range(300)} == held
    assert questions("within", "train") == questions("within", "held_out") and len(questions("within", "train")) == 18


def test_relations_are_permutations_and_another_world_has_others():
    one, other = relations(0), relations(1)
    assert all(sorted(table.values()) == list(ENTITIES) for table in (*one.values(), *other.values()))
    assert all(one[name] != other[name] for name in RELATIONS)
    assert [Hops(world=1)[index].prompt for index in range(20)] == [Hops()[index].prompt for index in range(20)]


def test_wrong_kinds_are_refused():
    with pytest.raises(ValueError, match=r"Hops has no kind 'acros'.*across"):
        Hops(kinds=("acros",))
    with pytest.raises(ValueError, match=r"Hops\.kinds is empty; name one or more of within, across"):
        Hops(kinds=())
