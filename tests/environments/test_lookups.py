"""Look-ups among distractors: what a page holds, and that turns written for SFT are those that a policy meets."""

from collections import Counter

import pytest

from gimbal.environments.lookups import KEYS, Lookups, LookupTurns, Pages, following, other, page
from gimbal.records import Task


def read(found, key):
    return found[found.index(key) + 1]


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("facts", [1, 4, 9])
def test_the_answer_is_where_the_pages_lead(hops, facts):
    for index in range(50):
        task = Lookups(hops=hops, facts=facts, seed=3)[index]
        key, value = task.prompt[0], ""
        for _ in range(hops):
            value = read(page(task, key), key)
            key = following(value)
        assert task.answer[1] == value and following(task.answer[1]) == key and task.prompt[1:] == ":" * hops
        assert Lookups(hops=hops, facts=facts, seed=3, mark="!")[index].answer == task.answer


def test_values_lead_to_the_next_letter_or_the_one_after_it():
    assert [following(value) for value in "0123456789"] == [*"BCCDDEEAAB"]
    assert [other(value) for value in "0189"] == [*"1098"]


def test_a_page_has_one_true_fact_and_distractors_that_mislead():
    for facts in (1, 3, 5, 8):
        task = Lookups(facts=facts)[0]
        for key, value in zip(KEYS, task.columns["values"], strict=True):
            found = page(task, key)
            assert found.endswith(";") and len(found) == 2 * facts + 1 and page(task, key) == found
            keys = {one: found[place + 1] for place, one in enumerate(found) if one in KEYS}
            assert keys.pop(key) == value and len(keys) == min(facts - 1, 4)
            assert all(said == other(task.columns["values"][KEYS.index(one)]) for one, said in keys.items())


def test_pages_answer_keys_and_end_with_any_other_turn():
    live, task = Pages().open(), Lookups()[0]
    live.reset(task, 0)
    moment = live.step("A?")
    assert (moment.observation, moment.calls, moment.errors, moment.ended) == (page(task, "A"), 1, 0, False)
    assert live.step("B2A?").observation == page(task, "A")
    for wrong in ("?", "A1?", "a?"):
        moment = live.fork().step(wrong)
        assert (moment.observation, moment.errors, moment.ended) == (";", 1, False)
    assert live.step(task.answer).terminated and live.step(task.answer).reward == 0
    with pytest.raises(ValueError, match=r"give tasks=Lookups\(\)"):
        live.reset(Task(id="t"), 0)


def test_turns_are_those_that_each_role_meets():
    for index in range(300):
        task = LookupTurns(slips=0.0)[index]
        said, (first, *seen) = task.columns["completion"], task.prompt.split("<eos>")
        assert first.startswith(first[0] + {"alone": "::", "planner": "!!", "executor": ":"}[task.source])
        found = []
        for told in seen:
            key = following(found[-1][1]) if found else first[0]
            found.append(key + (told[1] if task.source == "planner" else read(told, key)))
        key = following(found[-1][1]) if found else first[0]
        if len(found) == (1 if task.source == "executor" else 2):
            assert said == found[-1]
        else:
            assert said == (key + ">" if task.source == "planner" else "".join(found[-1:]) + key + "?")


def test_each_style_is_drawn_by_its_turns_and_slips_are_the_other_value():
    turns = LookupTurns(slips=1.0)
    sources = Counter(turns[index].source for index in range(2000))
    for source, share in {"alone": 3 / 8, "planner": 3 / 8, "executor": 2 / 8}.items():
        assert sources[source] / 2000 == pytest.approx(share, abs=0.04)
    for task in map(turns.__getitem__, range(200)):
        first, *seen = task.prompt.split("<eos>")
        if task.source == "executor" and seen:
            assert task.columns["completion"] == first[0] + other(read(seen[0], first[0]))


@pytest.mark.parametrize("wrong", [{"hops": 0}, {"facts": 0}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="both count from 1"):
        Lookups(**wrong)
