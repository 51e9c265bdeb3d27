"""The rows and the reward of docs/data.md do what the page says of them."""

import json
import re
import shlex
from pathlib import Path

import blocks
import made
import pytest

from gimbal import cli, recipes
from gimbal.config import Text
from gimbal.environments.dataset import Dataset
from gimbal.environments.minari import Minari
from gimbal.policies.token import Tokens
from gimbal.records import Task
from gimbal.rewards.function import Function

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
REWARD, METHOD = blocks.read("reward.md"), blocks.read("method.md")
SEEN = """
import json
def seen(prompts, completions, completion_ids, answer, id, source):
    said = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids, "answer": answer}
    open("seen.json", "w").write(json.dumps(said))
    return [0.0 for _ in prompts]
"""


def test_the_function_is_a_tool(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks.write_files(METHOD, ".")
    typed = Text(re.search(r'workflow="(Dialogue\(tool=tools.py.*)"', METHOD)[1])
    tool = recipes.load("grpo", {"workflow": typed}).workflow.tool
    said = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    assert "5 pages about x" in tool(Task(id="t"), said)
    told = tool.schemas[0]["function"]["parameters"]["properties"]
    assert told["limit"] == {"type": "integer", "description": "how many pages at most", "default": 5}


def test_the_tool_answers_from_its_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks.write_files(METHOD, ".")
    run = recipes.load(
        "grpo",
        {"workflow": Text(re.search(r'workflow="(Dialogue\(.*Weekday.*)"', METHOD)[1])},
    )
    tool = run.workflow.tool
    assert tool.triggers == ("<day>",) and tool(Task(id="t"), "it is <day>") == "never"
    assert tool(Task(id="t", columns={"weekday": "Sunday"}), "it is <day>") == "Sunday"


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """The page's rows and its function, as a user's files."""
    monkeypatch.chdir(tmp_path)
    (rows,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    Path("rows.jsonl").write_text(rows)
    blocks.write_files(REWARD, ".")
    Path("mine.py").write_text(Path("mine.py").read_text() + SEEN)
    return Dataset(path="rows.jsonl")


@pytest.mark.slow
def test_the_recipe_and_the_workflow_train(tasks, single_thread, capsys):
    blocks.write_files(METHOD, ".")
    Path("heldout.jsonl").write_text(Path("rows.jsonl").read_text())
    given = re.search(r'workflow="(workflow.py:SecondTry.*)"', METHOD)[1]
    small = ["steps=1", "prompts_per_step=1", "num_generations=2", "held_out.samples=1", "max_length=8", "threads=1"]
    assert cli.main(["train", "recipe.py:sums", f"workflow={given}", *small]) == 0
    said = capsys.readouterr()
    assert "driven by SecondTry" in said.out and not re.search("Error|Traceback", said.out + said.err)
    rows = [json.loads(line) for line in Path("runs/sums-0/rollouts.jsonl").read_text().splitlines()]
    assert all(any(letter.isdigit() for letter in row["text"]) or "that is " in row["text"] for row in rows)


TYPED = [
    line
    for line in re.findall(r"^gimbal train .*$", PAGE, re.MULTILINE)
    if re.search(r"tasks=(rows|data|openai|'data|'rows|me/)", line) and "workflow" not in line
]


@pytest.fixture
def library(tasks, monkeypatch):
    """What the commands name: files, a directory with splits, and two datasets that are laid out as on the hub."""
    found = pytest.importorskip("datasets")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", Path("hf").absolute())
    rows = "".join(json.dumps({"prompt": f"{n} + 1 =", "answer": f"{n + 1}"}) + "\n" for n in range(300))
    Path("rows.jsonl").write_text(rows)
    Path("heldout.jsonl").write_text(rows.splitlines()[0])
    Path("programs.jsonl").write_text('{"prompt": "p", "completion": "a = 1\\nprint(a)"}\n')
    Path("more.csv").write_text("prompt,answer\n1 + 1 =,2\n")
    Path("data").mkdir()
    found.disable_progress_bars()
    made = found.Dataset.from_list([{"prompt": "2 + 2 =", "answer": "4"}])
    for name in ("data/train-0", "data/test-0"):
        made.to_parquet(f"{name}.parquet")
    Path("openai/gsm8k/main").mkdir(parents=True)
    Path("openai/gsm8k/README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: train, path: main/train-*}\n"
        "  - {split: test, path: main/test-*}\n---\n"
    )
    for split in ("train", "test"):
        asked = found.Dataset.from_list([{"question": f"{split} {n}", "answer": f"so #### {n}"} for n in range(3)])
        asked.to_parquet(f"openai/gsm8k/main/{split}-0.parquet")
    Path("me/large").mkdir(parents=True)
    made.to_parquet("me/large/train.parquet")
    return found


@pytest.mark.slow
def test_the_commands_read_their_data(library):
    assert len(TYPED) >= 12
    read = {}
    for line in TYPED:
        given = [word.partition("=") for word in shlex.split(line, comments=True)[3:] if word != "model=PATH"]
        run = recipes.load("grpo", {key: Text(value) for key, _, value in given}, lambda said: None)
        held = 0 if run.held_out is None else len(run.held_out.tasks)
        assert run.tasks[len(run.tasks) - 1].id and (not held or run.held_out.tasks[held - 1].id)
        read[line] = (run, len(run.tasks), held)
    sizes = {(size, held) for _, size, held in read.values()}
    assert {(300, 0), (301, 0), (2, 0), (1, 1), (3, 3), (270, 30), (100, 200), (300, 1)} <= sizes, sizes
    (run,) = (run for line, (run, *_) in read.items() if "answer_after" in line)
    task = run.tasks[1]
    assert (task.answer, task.columns["messages"]) == ("1", [{"role": "user", "content": "train 1"}])
    assert run.rewards[0](group_of(task, "it is #### 1", "#### 2")) == [1.0, 0.0]


def group_of(task, *texts):
    rollouts = [
        made.rollout(task=task, sample=i, decisions=Tokens.row([1], [2, 3]), text=t) for i, t in enumerate(texts)
    ]
    return made.group(task, *rollouts)


def test_the_function_scores_both_rows(tasks):
    reward = Function(function="mine.py:score").open()
    try:
        for index in range(len(tasks)):
            reward.accepts(tasks[index])
            assert reward(group_of(tasks[index], "it is 4", "5")) == [1.0, 0.0]
    finally:
        reward.close()


def test_what_the_table_says_is_what_a_function_gets(tasks, tmp_path):
    reward = Function(function="mine.py:seen", writes=(str(tmp_path),)).open()
    try:
        for task, prompt in zip([tasks[0], tasks[1]], ["2 + 2 =", tasks[1].columns["messages"]], strict=True):
            reward(group_of(task, "it is 4", "5"))
            got = json.loads(Path("seen.json").read_text())
            texts = (
                ["it is 4", "5"]
                if isinstance(prompt, str)
                else [[{"role": "assistant", "content": text}] for text in ("it is 4", "5")]
            )
            assert got == {
                "prompts": [prompt] * 2,
                "completions": texts,
                "completion_ids": [[2, 3]] * 2,
                "answer": ["4", "4"],
            }
    finally:
        reward.close()


@pytest.mark.slow
def test_episodes_are_written_as_the_page_does_and_learned_from(tmp_path, monkeypatch, single_thread, capsys):
    pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    blocks.write_files(PAGE, ".")
    exec(compile(Path("record.py").read_text(), "record.py", "exec"), {})
    data = Minari(dataset="mine").recording
    assert (data.source, data.interface, len(data.episodes)) == ("Pendulum-v1", "3 observations, 1 real actions", 20)
    assert {one.length for one in data.episodes} == {200} and not any(one.terminated for one in data.episodes)
    typed = [shlex.split(line) for line in blocks.commands(PAGE) if line.endswith("=mine")]
    assert len(typed) == 2
    small = {"steps": "1", "store.minibatch": "8", "held_out": "none", "checkpoint_every": "1", "threads": "1"}
    for _, *words in typed:
        more = ["store.moves=2"] if "td3_bc" in words else []
        assert cli.main([*words, *more, *(f"{key}={value}" for key, value in small.items())]) == 0, (
            capsys.readouterr().err
        )
