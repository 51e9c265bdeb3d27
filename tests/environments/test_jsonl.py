import os

import numpy as np
import pytest
import torch
import yaml

from gimbal.config import plain, read
from gimbal.environments.dataset import Dataset, Rows


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
        ('{"prompt": "a", "prompt": "b"}', "line 1: the key 'prompt' is there twice"),
        ('{"prompt": "a", "b": [{"c": 1, "c": 1}]}', "line 1: the key 'c' is there twice"),
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
