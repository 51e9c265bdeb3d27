"""Rows of files and of Python as tasks."""

import json
import math
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
import yaml

from gimbal import config, recipes
from gimbal.config import plain, read
from gimbal.environments import dataset, images
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.forms import short


@pytest.fixture
def write(tmp_path):
    def make(text: str) -> str:
        path = tmp_path / "tasks.jsonl"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return make


def test_columns(write):
    path = write(
        '{"prompt": "2+2=", "answer": 4, "level": 1, "data_source": "sums"}\n\n{"prompt": "a\u2028b", "id": "x"}\n'
    )
    first, second = Dataset(path=path)[0], Dataset(path=path)[1]
    assert (first.id, first.prompt, first.answer, first.source) == ("tasks:1", "2+2=", "4", "sums")
    assert first.columns == {"answer": 4, "level": 1, "data_source": "sums"}
    assert (second.id, second.prompt, second.answer) == ("x", "a\u2028b", None)
    assert len(Dataset(path=path)) == 2


def test_other_column_names(write):
    task = Dataset(path=write('{"question": "q", "solution": "s"}'), prompt="question", answer="solution")[0]
    assert (task.prompt, task.answer) == ("q", "s")


def test_chat_messages_stay_messages():
    messages = [{"role": "user", "content": "hello"}]
    task = Rows(rows=[{"prompt": messages}])[0]
    assert task.prompt == "" and task.columns["messages"] == messages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\n{"question": "b"}', "tasks.jsonl, line 2: there is no column 'prompt'; columns: question"),
        ('{"prompt": "a"}\n\n{"prompt": ', "tasks.jsonl, line 3: not JSON"),
        ('["a"]', "line 1: expected an object, got list"),
        ('{"prompt": 3}', "line 1: 'prompt' is 3; expected text"),
        ('{"prompt": ""}', "line 1: 'prompt' is ''"),
        ('{"prompt": ["a"]}', "line 1: 'prompt' is"),
        (
            '{"prompt": [{"role": "user", "content": null}]}',
            "line 1: a message of user in 'prompt' has no content; expected text",
        ),
        ('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}', "line 2: the id '1' has come before"),
        (
            '{"prompt": "a\\ud83d"}',
            r"line 1: 'prompt' holds half of a surrogate pair, '\\ud83d', which is no character",
        ),
        (
            '{"prompt": [{"role": "user", "content": "\\udc80"}]}',
            r"line 1: 'prompt' holds half of a surrogate pair",
        ),
        ('{"prompt": "a", "note": {"b": ["\\ud83d"]}}', "line 1: 'note' holds half"),
        ('{"prompt": "a", "b": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1: it is nested too deeply"),
        ('{"prompt": "a", "b": ' + "1" * 5000 + "}", "line 1: a number of more than 4,300 digits; write it as text"),
        (
            '{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}',
            "line 1: there are a prompt and the column messages",
        ),
        ('{"prompt": "a", "prompt": "b"}', "line 1: the key 'prompt' appears twice"),
        ('{"prompt": "a", "b": [{"c": 1, "c": 1}]}', "line 1: the key 'c' appears twice"),
        ("\n", "holds no tasks"),
    ],
)
def test_mistakes_are_named_by_line(write, text, message):
    with pytest.raises(ValueError, match=message):
        len(Dataset(path=write(text)))


def test_a_missing_or_binary_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*none\.jsonl"):
        len(Dataset(path=str(tmp_path / "none.jsonl")))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        len(Dataset(path=str(tmp_path / "binary.jsonl")))


def test_rows_from_python():
    tasks = Rows(rows=[{"prompt": "a", "answer": "b"}, {"prompt": "c"}])
    assert [tasks[i].id for i in range(len(tasks))] == ["row:0", "row:1"]
    with pytest.raises(ValueError, match="row 1: there is no column 'prompt'"):
        len(Rows(rows=[{"prompt": "a"}, {}]))


def test_columns_from_python():
    columns = {"prompt": ["1 + 1 =", "2 + 2 ="], "answer": ["2", "4"]}
    run = recipes.load("grpo", config.flatten({"tasks": columns, "held_out": columns, "reward": "ExactAnswer()"}))
    assert [(task.prompt, task.answer) for task in (run.tasks[n] for n in range(2))] == [
        ("1 + 1 =", "2"),
        ("2 + 2 =", "4"),
    ]
    assert [run.held_out.tasks[n].answer for n in range(2)] == ["2", "4"]
    with pytest.raises(ValueError, match=r"different lengths \(prompt 2, answer 1\)"):
        short({"prompt": ["a", "b"], "answer": ["1"]})
    with pytest.raises(
        ValueError, match=r"'a' is text and no data file, and a row is a dict .*\[{'prompt': 'a'}, \.\.\.\]"
    ):
        short(["a", "b"])


def test_numbers_of_numpy_and_torch_become_pythons():
    """So that they can be saved with the run, and a resumed one reads the same."""
    row = {
        "prompt": np.str_("a"),
        "answer": np.float32(0.5),
        "id": np.int64(7),
        "x": np.arange(2),
        "y": [{"z": torch.tensor(True)}],
    }
    tasks = Rows(rows=[row])
    assert (tasks[0].prompt, tasks[0].answer, tasks[0].id) == ("a", "0.5", "7")
    assert tasks[0].columns["x"] == [0, 1] and tasks[0].columns["y"] == [{"z": True}]
    assert read(yaml.safe_load(yaml.safe_dump(plain(tasks))), Rows) == tasks


def test_rows_that_cannot_be_saved():
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="row 1: a object cannot be saved"):
        Rows(rows=[{"prompt": "a"}, {"prompt": "b", "x": object()}])
    with pytest.raises(ValueError, match="row 0: nested too deeply"):
        Rows(rows=[{"prompt": "a", "x": nested}])


def test_what_is_no_file_of_tasks_is_refused_at_once(tmp_path):
    """A pipe would be waited for, for good."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match="is no file; a JSONL file has one JSON object a line, and is read again by"):
        len(Dataset(path=str(tmp_path / "pipe.jsonl")))


def rows_of(tasks):
    return [(task.id, task.prompt, task.answer) for task in tasks]


CSV = '\ufeffprompt,answer,note\r\n"a, ""b""\r\nc",4,\r\n\r\nlast,,"x"\r\n'


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        (
            "t.jsonl",
            '\ufeff{"prompt": "a"}\r\n\r\n{"prompt": "é", "answer": 1}',
            [("t:1", "a", None), ("t:3", "é", "1")],
        ),
        ("t.ndjson", '{"prompt": "a"}\n', [("t:1", "a", None)]),
        ("t.json", ' [{"prompt": "a", "answer": 1}, {"prompt": "b"}]', [("t:0", "a", "1"), ("t:1", "b", None)]),
        ("t.json", '{"prompt": "a"}\n{"prompt": "b"}\n', [("t:1", "a", None), ("t:2", "b", None)]),
        ("t.csv", CSV, [("t:2", 'a, "b"\r\nc', "4"), ("t:5", "last", None)]),
        ("t.tsv", "prompt\tanswer\na,b\t4\n", [("t:2", "a,b", "4")]),
    ],
)
def test_each_kind_of_file(tmp_path, name, text, rows):
    (tmp_path / name).write_bytes(text.encode())
    tasks = Dataset(path=str(tmp_path / name))
    assert rows_of(tasks) == rows == rows_of(tasks[index] for index in range(len(tasks)))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("t.csv", b'prompt,answer\n"a "x" b",4\n', "line 2: not CSV .*; a quote inside of a quoted cell is doubled"),
        ("t.csv", b"prompt,answer\na,b,c\n", "line 2: 3 cells, and the first row names 2 columns"),
        ("t.csv", b'prompt,answer\n"a,b\n', "line 2: not CSV"),
        ("t.csv", b"prompt,prompt\na,b\n", "names the column 'prompt' twice"),
        ("t.csv", b"prompt,answer\n", "holds no tasks"),
        ("t.csv", b"", "holds no tasks"),
        ("t.csv", b"prompt,answer\n,4\n", "line 2: 'prompt' is None; expected text"),
        ("t.csv", "prompt\né\n".encode("latin1"), "cannot be read as UTF-8: byte 7 is 0xe9; save it as UTF-8"),
        ("t.json", b"[]", "holds no tasks"),
        ("t.json", b'[{"prompt": "a"}, 3]', "item 1: expected an object, got int"),
        ("t.json", b'{\n "rows": []\n}', "holds one object over several lines; expected a list of objects"),
        ("t.json", b'[{"prompt": "a"}', "t.json: not JSON"),
        ("t.jsonl", b'{"question": "a"}', r"columns: question \(tasks.prompt=question reads another one\)"),
        ("t.jsonl", b'{"prompt": NaN}', "'prompt' is nan; expected text"),
        ("t.jsonl.gz", b"", "is no file of rows by its name; it ends in .jsonl, "),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ValueError, match=sentence) as raised:
        len(Dataset(path=str(tmp_path / name)))
    assert "\n" not in str(raised.value)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(name: str, *prompts: str, **columns) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"prompt": prompt, **columns}) + "\n" for prompt in prompts))

    return make


def test_several_files_a_pattern_and_a_directory(place):
    place("a/x.jsonl", "1", "2")
    place("b/x.jsonl", "3")
    (Path("b") / "y.csv").write_text("prompt\n4\n")
    ids = ["a/x.jsonl:1", "a/x.jsonl:2", "b/x.jsonl:1"]
    for value in ("a/x.jsonl,b/x.jsonl", "*/x.jsonl", ["a/x.jsonl", Path("b/x.jsonl")]):
        assert [task.id for task in short(value)] == ids, value
    assert [task.prompt for task in short("a/x.jsonl,b/y.csv")] == ["1", "2", "4"]
    assert [task.prompt for task in short("a")] == ["1", "2"]
    for value, sentence in {
        "b": r"b holds .csv and .jsonl files; say which ones to read: tasks='b/\*.csv'",
        "c/*.jsonl": r"no file matches c/\*.jsonl",
        "c/d/e": "there is no file or directory c/d/e",
        "a/x.jsonl,a/x.jsonl": "a/x.jsonl is named twice",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            len(short(value))
    Path("empty").mkdir()
    (Path("empty") / "rows.jsonl.gz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty holds no file of rows .*; unpack rows.jsonl.gz"):
        len(short("empty"))


def test_ids_are_unique_over_all_files(place):
    place("x.jsonl", "1", id=7)
    place("y.jsonl", "2", id="7")
    with pytest.raises(ValueError, match=r"y.jsonl, line 1: the id '7' has come before \(x.jsonl, line 1\)"):
        len(short("x.jsonl,y.jsonl"))


def test_the_files_of_a_split(place):
    for name in (
        "d/train-00000-of-00002.jsonl",
        "d/train-00001-of-00002.jsonl",
        "d/test.jsonl",
        "d/dev/rows.jsonl",
        "d/more.jsonl",
    ):
        place(name, name)
    assert [task.prompt for task in short("d")] == [
        "d/more.jsonl",
        "d/train-00000-of-00002.jsonl",
        "d/train-00001-of-00002.jsonl",
    ]
    assert [task.prompt for task in Dataset(path="d", split="test")] == ["d/test.jsonl"]
    assert [task.prompt for task in Dataset(path="d", split="validation")] == ["d/dev/rows.jsonl"]
    with pytest.raises(ValueError, match=r"d has no split tets; it has .*test.* \(tasks.split=NAME\)"):
        len(Dataset(path="d", split="tets"))


VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "2 + 2 = ?", "tool_calls": None}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"split": "train", "index": 0},
}


def test_a_row_of_verls():
    task = Rows(rows=[VERL])[0]
    assert (task.answer, task.source, task.columns["extra_info"]) == ("4", "openai/gsm8k", VERL["extra_info"])
    assert task.columns["messages"] == [{"role": "user", "content": "2 + 2 = ?"}], "keys that Arrow made up are gone"
    assert Rows(rows=[VERL], answer="extra_info.index")[0].answer == "0"


@pytest.mark.parametrize("name", ["solution", "ground_truth"])
def test_the_answer_by_the_names_of_others(name):
    task = Rows(rows=[{"prompt": "a", name: "4"}])[0]
    assert task.answer == task.columns[name] == "4"
    assert Rows(rows=[{"prompt": "a", name: "4", "answer": "5"}])[0].answer == "5"


def test_an_answer_behind_a_mark():
    row = {"question": "q", "answer": "3 + 4 = 7 #### 2\n#### 7 "}
    task = Rows(rows=[row], prompt="question", answer_after="####")[0]
    assert (task.answer, task.columns["answer"]) == ("7", "7"), "a reward's parameter answer is the answer"
    with pytest.raises(ValueError, match=r"row 0: the answer in 'answer' has no '####' \(tasks.answer_after\): '7'"):
        len(Rows(rows=[{"prompt": "q", "answer": "7"}], answer_after="####"))


def test_an_answer_column_that_no_row_has():
    with pytest.raises(ValueError, match=r"no row has the answer 'answr' \(tasks.answer\); columns: prompt, answer"):
        len(Rows(rows=[{"prompt": "q", "answer": "7"}], answer="answr"))
    assert Rows(rows=[{"prompt": "q", "answer": math.nan}])[0].answer is None


def test_system_prompts():
    text, chat = {"prompt": "q"}, {"prompt": [{"role": "user", "content": "q"}]}
    own = {"prompt": [{"role": "system", "content": "own"}, *chat["prompt"]]}
    tasks = Rows(rows=[text, chat, own], system="Be brief.")
    asked = [[message["content"] for message in task.columns["messages"]] for task in tasks]
    assert asked == [["Be brief.", "q"], ["Be brief.", "q"], ["own", "q"]] and all(task.prompt == "" for task in tasks)
    assert Rows(rows=[text], chat=True)[0].columns["messages"] == chat["prompt"]


def test_tools_of_a_chat():
    chat, schema = [{"role": "user", "content": "q"}], {"type": "function", "function": {"name": "f"}}
    given = [{"prompt": chat, "tools": tools} for tools in ([schema], json.dumps([schema]))]
    assert [task.columns["tools"] for task in Rows(rows=given)] == [[schema], [schema]]
    assert Rows(rows=[{"prompt": "text", "tools": "hammer"}])[0].columns["tools"] == "hammer"
    with pytest.raises(ValueError, match=r"row 0: the column tools is \['f'\]; of a chat it is a list of OpenAI's"):
        len(Rows(rows=[{"prompt": chat, "tools": ["f"]}]))


def test_a_file_that_is_written_to_while_it_is_in_use(place):
    place("t.jsonl", "a", "b")
    tasks = short("t.jsonl")
    assert tasks[0].prompt == "a"
    Path("t.jsonl").rename("old.jsonl")  # as editors and downloads do it: what was opened is still there
    place("t.jsonl", "other", "rows")
    assert tasks[1].prompt == "b"
    tasks = short("t.jsonl")
    assert len(tasks) == 2
    place("t.jsonl", "yet", "other", "rows")
    with pytest.raises(ValueError, match=r"t.jsonl changed while it was in use"):
        tasks[1]


def test_rows_are_not_held(place):
    """A task of 4 kB costs the sixteen bytes of its place."""
    place("t.jsonl", *(f"{number} " + "x" * 4000 for number in range(500)))
    tasks = short("t.jsonl")
    tracemalloc.start()
    assert len(tasks) == 500
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 150_000 and tasks[499].prompt.startswith("499 ")


def test_the_rows_that_are_tried_before_a_run(place, monkeypatch):
    place("t.jsonl", *(str(number) for number in range(200)))
    with Path("t.jsonl").open("a") as file:
        file.write('{"prompt": "the longest of all"}\n{"prompt": "x", "answer": "1"}\n{"prompt": "x", "other": "1"}\n')
    assert list(short("t.jsonl").telling) == list(range(203))
    monkeypatch.setattr(dataset, "MOST_TRIED", 100)
    telling = short("t.jsonl").telling
    assert {0, 200, 201, 202} <= set(telling) and len(telling) < 60


def test_a_dataset_travels_without_its_open_files(place):
    place("t.jsonl", "a")
    tasks = short("t.jsonl")
    assert len(tasks) == 1
    again = pickle.loads(pickle.dumps(tasks))
    assert again == tasks and again[0].prompt == "a"


def test_images_are_paths(place, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    image = PIL.Image.new("RGB", (2, 2))
    Path("data").mkdir()
    image.save("data/pic.png")
    place("data/t.jsonl", "a", image="pic.png")
    task = short("data/t.jsonl")[0]
    assert task.columns["images"] == [task.columns["image"]] == [str(tmp_path / "data" / "pic.png")]
    rows = Rows(rows=[{"prompt": "a", "images": [image, image]}])
    (one, other) = rows[0].columns["images"]
    assert one == other and PIL.Image.open(one).size == (2, 2)
    assert read(yaml.safe_load(yaml.safe_dump(plain(rows))), Rows)[0].columns["images"] == [one, one]
    place("data/none.jsonl", "a", images=["no.png"])
    with pytest.raises(ValueError, match=r"none.jsonl, line 1, column images: there is no image no.png; a path is"):
        len(short("data/none.jsonl"))
    assert Rows(rows=[{"prompt": "a", "image": "ascii art"}])[0].columns["image"] == "ascii art"
    with pytest.raises(ValueError, match="7 bytes that begin b'garbage' are no PNG"):
        images.stored(b"garbage", "here")
