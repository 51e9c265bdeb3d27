"""Environments of other packages: their own solutions and checks against ours, all of them, and a process that is killed in the middle.

`make test-environments` installs the packages; `make test` runs what needs none of them.
"""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "docs")]
import blocks
import hermes

from gimbal import recipes
from gimbal.cli import main
from gimbal.config import Text
from gimbal.environments import agentdojo, bfcl
from gimbal.environments.agentdojo import UNEARNED, AgentDojo, AgentDojoTasks
from gimbal.environments.bfcl import Bfcl, BfclTasks
from gimbal.environments.calls import written
from gimbal.records import Task
from gimbal.workflows.self_play import SelfPlay

PAGE = blocks.read("environments.md")
# OpenEnv needs a server (test_openenv.py), and what names no environment is in tests/recipes/test_configure.py.
COMMANDS = [line for line in blocks.commands(PAGE) if re.search(r"(?:tool|game)=(?!OpenEnv)\w", line)]
NEEDS = {"AgentDojo": "agentdojo", "Bfcl": "bfcl_eval", "Verifiers": "verifiers", "Mcp": "mcp", "MiniGrid": "minigrid"}
NEEDS |= {
    "TextWorld": "textworld",
    "TextArena": "textarena",
    "TextArenaMatch": "textarena",
    "TextGymnasium": "gymnasium",
}
SOLVING = Path(__file__).parent / "solving.py"


@pytest.fixture
def dojo():
    pytest.importorskip("agentdojo", reason="agentdojo is not here: make test-environments installs it")
    return AgentDojoTasks(every=True)


@pytest.fixture
def berkeley():
    pytest.importorskip("bfcl_eval", reason="bfcl-eval is not here: make test-environments installs it")


@pytest.mark.slow  # every world is read and copied
def test_whoever_does_nothing_earns_nothing_in_agentdojo(dojo):
    """But in five tasks, whose own check gives it away; those are named, and left out."""
    live, given = AgentDojo().open(), set()
    for index in range(97):
        live.reset(dojo[index], 0)
        end = live.step("")
        assert end.terminated and end.reward in (0.0, 1.0)
        given |= {dojo[index].id.removeprefix("agentdojo/v1.2.2/")} if end.reward else set()
    assert len(dojo) == 97 and given == set(UNEARNED)
    kept = AgentDojoTasks()
    assert {kept[at].id for at in range(len(kept))} == {dojo[at].id for at in range(97)} - {
        f"agentdojo/v1.2.2/{one}" for one in given
    }


@pytest.mark.parametrize("category", ["base", "miss_func", "miss_param", "long_context"])
def test_bfcl_executes_and_judges_as_the_package_does(berkeley, category):
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

    tasks, live = BfclTasks(category=category), Bfcl().open()
    assert len(tasks) == 200
    for index in range(200):
        task, entry = tasks[index], bfcl._loaded(category)[index]
        live.reset(task, 0)
        mine = [live.step(turn) for turn in tasks.solution(task)]
        assert [one.reward for one in mine] == [0.0] * (len(mine) - 1) + [1.0], task.id
        said = [one["content"] for moment in mine for one in moment.observation or () if one["role"] == "tool"]
        named = {
            "model_name": f"said_{category}",
            "test_entry_id": entry["id"],
            "long_context": category == "long_context",
        }
        apart = {name: entry[name] for name in ("initial_config", "involved_classes")}
        theirs = [execute_multi_turn_func_call(turn, **apart, **named)[0] for turn in entry["ground_truth"]]
        assert said == [answer for turn in theirs for answer in turn], task.id
        turns = [[turn] if turn else [] for turn in entry["ground_truth"]]
        assert multi_turn_checker(turns, entry["ground_truth"], entry, category, f"judged_{category}")["valid"]
        live.reset(task, 0)
        while not (end := live.step("")).ended:
            continue
        assert end.reward == 0, task.id


def test_of_bfcl_a_turn_that_lacks_a_call_is_worth_nothing_and_ends_it(berkeley):
    tasks, live = BfclTasks(), Bfcl().open()
    ended = 0
    for index in range(0, 200, 10):
        turns = tasks.solution(tasks[index])
        live.reset(tasks[index], 0)
        moment = live.step(turns[1])  # the first request's calls are left out
        ended += moment.terminated and moment.reward == 0
    assert ended == 20


def test_calls_that_cannot_be_are_answered_and_not_evaluated(berkeley, dojo):
    live = Bfcl().open()
    live.reset(BfclTasks()[0], 0)
    bad = [("_load_scenario", {"scenario": {}}), ("exit", {}), ("cd", {"folder": "nowhere"}), ("cd", {"place": "x"})]
    said = [live.step(written(name, arguments)).observation[0]["content"] for name, arguments in bad]
    assert said[0].endswith("name '_load_scenario' is not defined") and said[1].endswith("name 'exit' is not defined")
    assert "No such file or directory" in said[2] and "unexpected keyword argument 'place'" in said[3]
    assert live.step("<tool_call>{</tool_call>").observation[0]["content"].startswith("error: a call is ")
    desk = AgentDojo().open()
    desk.reset(dojo[0], 0)
    said = desk.step(written("send_money", {}) + written("search_emails", {"query": 3})).observation
    assert "ToolNotFoundError" in said[0]["content"] and "ValidationError" in said[1]["content"]


def test_whose_tasks_they_are(berkeley, dojo):
    for spec, sentence in ((AgentDojo(), "no column version"), (Bfcl(), "no column category")):
        with pytest.raises(ValueError, match=sentence):
            spec.open().reset(Task(id="other"), 0)
    with pytest.raises(ValueError, match="no version 'v9'"):
        AgentDojoTasks(version="v9")[0]


def test_a_package_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(ValueError, match=r"suites \['bank'\]; choose of workspace"):
        AgentDojoTasks(suites=("bank",))
    agentdojo._suite.cache_clear()
    bfcl._loaded.cache_clear()
    monkeypatch.setitem(sys.modules, "agentdojo.task_suite", None)
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(ValueError, match=r"pip install -e '.\[agentdojo\]'"):
        AgentDojoTasks()[0]
    with pytest.raises(ValueError, match="pip install --no-deps bfcl-eval"):
        BfclTasks()[0]


def played(place, *kill_at):
    done = subprocess.run(
        [sys.executable, SOLVING, place, *map(str, kill_at)], capture_output=True, text=True, timeout=500
    )
    return done.returncode, done.stdout


@pytest.mark.slow  # 297 solutions in tokens, twice, in four processes: 80 s
def test_all_solutions_earn_1_and_killed_ones_come_to_the_same_bytes(berkeley, dojo, tmp_path):
    code, whole = played(tmp_path / "whole")
    assert code == 0, whole
    names, _, earned, count, _ = zip(*map(str.split, whole.splitlines()), strict=True)
    assert names == ("agentdojo", "bfcl") and earned == count == ("97", "200")
    broken = tmp_path / "broken"
    for kill_at in (250, 1000):  # in the middle of the first package, and of the second
        assert played(broken, kill_at)[0] == -9
    assert played(broken) == (0, whole)


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: re.search(r"(?:tool|game)=([A-Z]\w+)", line)[1])
@pytest.mark.slow  # two steps of training behind prompts of thousands of tokens
def test_the_commands_of_the_page_train(line, tmp_path, monkeypatch, capsys):
    """Where the package is there; elsewhere they are only read."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)  # of the model that is made here
    blocks.write_files(PAGE, ".")
    Path("rows.jsonl").write_text('{"prompt": [{"role": "user", "content": "2 + 2 = ?"}]}\n' * 2)
    Path("mine.py").write_text("def score(completions, **columns):\n    return [0.0 for _ in completions]\n")
    words = blocks.words_of(line)
    named = re.search(r"(?:tool|game)=([A-Z]\w+)", line)[1]
    parts = dict(word.split("=", 1) for word in words[2:])
    run = recipes.load(
        "grpo", {key: Text(parts[key]) for key in ("tasks", "workflow", "rewards", "reward") if key in parts}
    )
    played = run.workflow.game if isinstance(run.workflow, SelfPlay) else run.workflow.tool
    assert type(played).__name__ == named and (run.rewards == ()) == ("rewards" in parts)
    if find_spec(NEEDS[named]) is None:
        pytest.skip(f"{NEEDS[named]} is not here: make test-environments installs it")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # "python" is this one
    rollouts = (
        "4" if isinstance(run.workflow, SelfPlay) else "2"
    )  # of two matches the first seats, at least, have played
    small = {"steps": "2", "prompts_per_step": "1", "max_length": "24", "num_generations": rollouts}
    words = [word.replace("model=PATH", f"model={hermes.saved('model')}") for word in blocks.small(words, small)]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert re.search(rf"grpo: [\d,]+ tasks; 2 steps, each of {rollouts} rollouts of one prompt", said.out + said.err)
    assert main([*words, "--runs", "runs"]) == 0
    (metrics,) = Path("runs").glob("*/metrics.jsonl")
    rows = [json.loads(row) for row in metrics.read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row][-2:] == [1, 2] and not any(
        "environment_error" in name for row in rows for name in row
    )
