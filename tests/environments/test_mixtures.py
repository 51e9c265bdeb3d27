"""Several sets drawn from by weight."""

from collections import Counter

import pytest

from gimbal.config import Text, flatten, plain, read
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.forms import short
from gimbal.environments.mixture import Mixed


def rows(letter, count, **columns):
    return Rows(rows=[{"prompt": f"{letter}{number}", "id": str(number), **columns} for number in range(count)])


def test_shares_hold_and_every_task_is_there():
    mixed = Mixed(sets=(rows("a", 70), rows("b", 5)), weights=(7.0, 3.0), names=("a", "b"))
    tasks = [mixed[index] for index in range(len(mixed))]
    assert Counter(task.source for task in tasks) == {"a": 70, "b": 30}
    assert Counter(task.prompt for task in tasks) == {
        **{f"a{n}": 1 for n in range(70)},
        **{f"b{n}": 6 for n in range(5)},
    }
    assert mixed.sources == ("a", "b")
    ids = [task.id for task in tasks]
    assert len(set(ids)) == 100 and {"b/0", "b/0~1", "b/0~5"} <= set(ids), "each draw has random numbers of its own"


def test_the_order_is_the_seeds():
    def order(seed):
        mixed = Mixed(sets=(rows("a", 30), rows("b", 30)), weights=(1.0, 1.0), names=("a", "b"), seed=seed)
        return [mixed[index].id for index in range(len(mixed))]

    assert order(0) == order(0) != order(1)
    assert sorted(order(0)) == sorted(order(1)) and len(set(order(0))) == 60, "equal sizes and weights: every task once"


def test_without_weights_every_task_once():
    mixed = Mixed(sets=(rows("a", 2), rows("b", 3)), names=("a", "b"))
    assert [mixed[index].id for index in range(len(mixed))] == ["a/0", "a/1", "b/0", "b/1", "b/2"]


def test_sources_of_rows_stay():
    mixed = Mixed(sets=(rows("a", 1, data_source="own"), rows("b", 1)), weights=(1.0, 1.0), names=("a", "b"))
    assert {mixed[index].source for index in range(2)} == {"own", "b"}


def test_two_questions_alike():
    mixed = Mixed(sets=(rows("a", 2), rows("a", 2)), names=("x", "y"))
    first, second, *again = mixed.questions().tolist()
    assert again == [first, second] and first != second


def test_what_is_typed(tmp_path):
    expected = Mixed(sets=(Dataset(path="x/a.jsonl"), Dataset(path="b.parquet")), weights=(0.7, 0.3))
    assert expected.names == ("a", "b")
    given = [
        Text("{x/a.jsonl: 0.7, b.parquet: 0.3}"),
        Text("x/a.jsonl*0.7,b.parquet*0.3"),
        flatten({"tasks": {"x/a.jsonl": 0.7, "b.parquet": 0.3}})["tasks"],
        ["x/a.jsonl*0.7", "b.parquet*0.3"],
    ]
    assert [short(value) for value in given] == [expected] * 4
    assert read(plain(expected), Mixed) == expected
    hub = short("openai/gsm8k*1,me/code.v2*2")
    assert [part.path for part in hub.sets] == ["openai/gsm8k", "me/code.v2"] and hub.names == ("gsm8k", "code.v2")
    assert short("ReasoningGym(name='a/b')") == "ReasoningGym(name='a/b')" and short("own.py:Mine()") == "own.py:Mine()"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: short("a.jsonl*0.7,b.jsonl"),
            r"some have a weight and some have none; give one to each: a.jsonl\*0.7",
        ),
        (lambda: Mixed(sets=(rows("a", 1),), weights=(0.0,)), "the weights of a Mixed are above 0"),
        (lambda: Mixed(sets=(rows("a", 1),), weights=(1.0, 2.0)), "1 sets, 2 weights and 0 names"),
        (
            lambda: Mixed(sets=(rows("a", 1), rows("b", 1)), names=("x", "x")),
            "names of a Mixed are x, x; each set has one",
        ),
        (
            lambda: len(Mixed(sets=(rows("a", 100), rows("b", 1)), weights=(1e-9, 1.0), names=("a", "b"))),
            "all 100 tasks of a have 1e-09 of the draws takes 100,000,000,1.. draws",
        ),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
