"""Look-ups among distractors: what a page holds, and that turns written for SFT are those that a policy meets."""

from collections import Counter
from string import ascii_uppercase

import pytest

from gimbal.environments.lookups import Lookups, LookupTurns, Pages, page, value_of
from gimbal.records import Task


def followed(task, hops):
    """The answer, read off the pages."""
    key = task.prompt[0]
    for _ in range(hops):
        found = page(task, key)
        key = found[found.index(key) + 1].upper()
    return key.lower()


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_answer_is_where_the_pages_lead(hops):
    for index in range(50):
        task = Lookups(hops=hops, seed=3)[index]
        assert followed(task, hops) == task.answer and task.prompt[1:] == ":" * hops
        assert Lookups(hops=hops, seed=3, mark="!")[index].answer == task.answer


def test_a_page_has_one_true_fact_and_distractors_that_are_wrong():
    task = Lookups(facts=10)[0]
    for key in ascii_uppercase:
        found = page(task, key)
        facts = dict(zip(found[:-1:2], found[1:-1:2], strict=True))
        assert found.endswith(";") and len(facts) == 10 and page(task, key) == found
        true = {one for one, value in facts.items() if value == value_of(task.columns["values"], one)}
        assert true == {key}


def test_pages_answer_keys_and_end_with_any_other_turn():
    live, task = Pages().open(), Lookups()[0]
    live.reset(task, 0)
    moment = live.step("A?")
    assert (moment.observation, moment.calls, moment.errors, moment.ended) == (page(task, "A"), 1, 0, False)
    for wrong in ("?", "AB?", "a?"):
        moment = live.fork().step(wrong)
        assert (moment.observation, moment.errors, moment.ended) == (";", 1, False)
    assert live.step(task.answer).terminated and live.step(task.answer).reward == 0
    with pytest.raises(ValueError, match=r"give tasks=Lookups\(\)"):
        live.reset(Task(id="t"), 0)


def test_turns_are_those_that_each_role_meets():
    for index in range(300):
        task = LookupTurns(slips=0.0, facts=6)[index]
        said, (first, *seen) = task.columns["completion"], task.prompt.split("<eos>")
        mark = {"alone": "::", "planner": "!!", "executor": ":"}[task.source]
        assert first.startswith(first[0] + mark) and (first[-1] in ">?") == bool(seen) and task.prompt[-1] != "?"
        if not seen:
            assert said == first[0] + (">" if task.source == "planner" else "?")
            continue
        told = [one.partition(";")[0] for one in seen]
        if task.source == "planner":
            assert [len(one) for one in told] == [1] * len(told)
            assert said == (told[0].upper() + ">" if len(told) == 1 else told[1])
        elif task.source == "executor":
            assert said == told[0][told[0].index(first[0]) + 1]
        else:
            value = told[0][told[0].index(first[0]) + 1]
            assert said == (value.upper() + "?" if len(told) == 1 else told[1][told[1].index(value.upper()) + 1])


def test_each_style_is_drawn_by_its_turns_and_slips_are_of_reading_alone():
    turns = LookupTurns(facts=6, slips=1.0)
    sources = Counter(turns[index].source for index in range(2000))
    for source, share in {"alone": 3 / 8, "planner": 3 / 8, "executor": 2 / 8}.items():
        assert sources[source] / 2000 == pytest.approx(share, abs=0.04)
    for index in range(200):
        task = turns[index]
        seen = task.prompt.split("<eos>")
        if task.source == "executor" and len(seen) == 2:
            facts, said = seen[1].partition(";")[0], task.columns["completion"]
            assert said in facts[1::2] and facts.index(task.prompt[0]) + 1 not in [
                place for place in range(1, len(facts), 2) if facts[place] == said and facts[1::2].count(said) == 1
            ]


@pytest.mark.parametrize("wrong", [{"hops": 0}, {"facts": 0}, {"facts": 27}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="pages of 1 to 26 facts"):
        Lookups(**wrong)
