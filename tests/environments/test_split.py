"""Tasks that are set aside: never on both sides, and the same ones for the same seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gimbal import recipes
from gimbal.config import Text, plain, read
from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.mixture import Mixed
from gimbal.environments.split import Split, parted
from gimbal.ops import philox


def rows(prompts):
    return Rows(rows=[{"prompt": str(prompt)} for prompt in prompts])


def asked(tasks):
    return [tasks[index].prompt for index in range(len(tasks))]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=5, max_size=40), st.sampled_from([0.1, 0.25, 1.0, 3.0]), st.integers(0, 5))
def test_a_question_is_on_one_side_with_all_its_rows(prompts, amount, seed):
    """Also where one is asked twice."""
    try:
        train, held = (asked(side) for side in parted(rows(prompts), amount, seed))
    except ValueError as error:
        assert "leaves none to train on" in str(error) and len(set(prompts)) == 1
        return
    assert train and held and not set(train) & set(held) and sorted(train + held) == sorted(map(str, prompts))
    count = max(1, round(amount * len(prompts)) if amount < 1 else amount)
    smallest = min(map(prompts.count, prompts))
    assert len(held) <= max(count, smallest)
    again = [asked(side) for side in parted(rows(prompts), amount, seed)]
    assert again == [train, held]


def test_of_different_questions_those_drawn_first_are_held_out():
    """The split of rows, as it was before rows that ask the same were kept together."""
    for size, amount, seed, count in ((50, 10.0, 0, 10), (333, 0.1, 7, 33), (5, 0.05, 1, 1)):
        first = sorted(philox(seed, "held out").permutation(size)[:count])
        train, held = (asked(side) for side in parted(rows(range(size)), amount, seed))
        assert held == [str(n) for n in first] and train == [str(n) for n in range(size) if n not in first]


def test_few_questions_that_repeat_lose_no_rows():
    for amount, held_out in ((0.05, 9), (0.25, 10), (0.5, 20), (0.9, 38)):
        train, held = parted(rows([n % 5 for n in range(48)]), amount)
        assert abs(len(held) - held_out) <= 1 and len(train) + len(held) == 48
    train, held = parted(rows([0] * 90 + [*range(1, 11)]), 0.1)  # one that is asked by most rows is not held out
    assert (len(train), len(held)) == (90, 10)
    with pytest.raises(
        ValueError, match="leaves none to train on; all ask the same, so hold out a file of other tasks"
    ):
        len(parted(rows([0] * 8), 0.1)[0])


def test_another_seed_holds_others_out():
    first, second = (asked(parted(rows(range(50)), 10.0, seed)[1]) for seed in (0, 1))
    assert len(first) == len(second) == 10 and first != second


def test_each_set_of_a_mixture_is_parted():
    mixed = Mixed(sets=(rows(range(40)), rows(range(100, 110))), weights=(3.0, 1.0), names=("a", "b"))
    for amount, wanted in ((0.2, (8, 2)), (8.0, (6, 2))):
        train, held = parted(mixed, amount)
        assert tuple(len(side) for side in held.sets) == wanted and len(held) == sum(wanted)
        assert not set(asked(train)) & set(asked(held)) and (train.weights, train.names) == ((3.0, 1.0), ("a", "b"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"question": "{n}"}}\n' for n in range(20)))
    (tmp_path / "other.jsonl").write_text('{"question": "x"}\n')
    for split in ("train", "test"):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{split}.jsonl").write_text(f'{{"question": "{split}"}}\n')


def configured(**words):
    given = {key.replace("__", "."): Text(value) for key, value in words.items()}
    return recipes.load(
        "grpo", {"reward": Text("ExactAnswer()"), "tasks.prompt": Text("question"), **given}, lambda said: None
    )


def test_what_is_typed_for_it(place):
    run = configured(tasks="rows.jsonl", held_out="0.2", held_out__samples="2")
    assert (len(run.tasks), len(run.held_out.tasks), run.held_out.samples) == (16, 4, 2)
    assert read(plain(run), type(run)) == run, "it is saved with the run"
    anew = recipes.load(
        "grpo",
        {"tasks": Text("rows.jsonl"), "tasks.prompt": "question", "reward": Text("ExactAnswer()"), "held_out": 5},
    )
    assert (len(anew.tasks), len(anew.held_out.tasks)) == (15, 5)
    run = configured(tasks="d", held_out="test")
    assert asked(run.tasks) == ["train"] and asked(run.held_out.tasks) == ["test"]
    run = configured(tasks="rows.jsonl", held_out="other.jsonl")
    assert asked(run.held_out.tasks) == ["x"], "a file is read as the tasks are"
    assert configured(tasks="rows.jsonl", held_out="none").held_out is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"held_out": "1.5"}, "held_out is 1.5; it must be a share of the tasks, such as 0.1, or a whole number"),
        ({"held_out": "20"}, "held_out=20 of 20 tasks leaves none to train on"),
        ({"held_out": "tset"}, "rows.jsonl has no split tset"),
        ({"held_out": "0.1", "held_out__tasks__seed": "1"}, "split in different ways .* give both the same"),
        ({"held_out": "0.1", "tasks__streaming": "true"}, "a stream cannot be split"),
        (
            {"tasks": "ReasoningGym(name='chain_sum')", "held_out": "0.1"},
            "tasks is ReasoningGym, which generates its tasks",
        ),
    ],
)
def test_refusals(place, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        if words.get("tasks", "").startswith("Reasoning"):
            recipes.load("grpo", {key: Text(value) for key, value in words.items()})
        run = configured(**{"tasks": "rows.jsonl", **words})
        len(run.held_out.tasks)


def test_a_split_is_of_any_tasks():
    class Squares(AbstractTasks):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            return rows([index * index])[0]

    train = Split(tasks=Squares(), side="train", held_out=3.0)
    held = Split(tasks=Squares(), side="held_out", held_out=3.0)
    assert sorted(map(int, asked(train) + asked(held))) == [n * n for n in range(10)]


def test_a_mixture_is_read_alike(place):
    run = configured(tasks="rows.jsonl*0.5,other.jsonl*0.5")
    assert [part.prompt for part in run.tasks.sets] == ["question", "question"]
    assert isinstance(run.tasks.sets[0], Dataset) and len(run.tasks) == 40
