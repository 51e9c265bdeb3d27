import pytest

from gimbal.environments.jsonl import Jsonl, Rows


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
    first, second = Jsonl(path=path)[0], Jsonl(path=path)[1]
    assert (first.id, first.prompt, first.answer, first.source) == ("tasks:1", "2+2=", "4", "sums")
    assert first.columns == {"answer": 4, "level": 1, "data_source": "sums"}
    assert (second.id, second.prompt, second.answer) == ("x", "a\u2028b", None)
    assert len(Jsonl(path=path)) == 2


def test_other_column_names(write):
    task = Jsonl(path=write('{"question": "q", "solution": "s"}'), prompt="question", answer="solution")[0]
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
        ("\n", "holds no tasks"),
    ],
)
def test_mistakes_are_named_by_line(write, text, message):
    with pytest.raises(ValueError, match=message):
        len(Jsonl(path=write(text)))


def test_a_missing_or_binary_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        len(Jsonl(path=str(tmp_path / "none.jsonl")))
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        len(Jsonl(path=str(tmp_path / "binary.jsonl")))


def test_rows_from_python():
    tasks = Rows(rows=[{"prompt": "a", "answer": "b"}, {"prompt": "c"}])
    assert [tasks[i].id for i in range(len(tasks))] == ["row:0", "row:1"]
    with pytest.raises(ValueError, match="row 1: there is no column 'prompt'"):
        len(Rows(rows=[{"prompt": "a"}, {}]))
