"""Environments of verifiers run as they are: their parsers, rubrics, tools, stops and errors, by our protocol."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers.legacy", reason="verifiers < 0.4 is not here: make test-environments installs it")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "workflows")]
import hermes
import own_verifiers

from gimbal import cli
from gimbal.engines.base import Request, drained
from gimbal.environments.base import Failure
from gimbal.environments.calls import written
from gimbal.environments.verifiers import Verifiers, VerifiersTasks
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven

FILE = f"{own_verifiers.__file__}:"


def play(tasks, *turns, index=1, **spec):
    live = Verifiers(**spec).open()
    assert live.reset(tasks[index], 0) is None
    return [live.step(turn) for turn in turns]


def test_system_prompt_parser_and_weights_of_a_single_turn():
    tasks = VerifiersTasks(environment=own_verifiers.asked)
    assert len(tasks) == 6 and tasks[1].columns["messages"] == [
        {"role": "system", "content": "Answer in XML."},
        {"role": "user", "content": "30 + 12?"},
    ]
    (end,) = play(tasks, "<think>so</think><answer>42</answer>")
    assert end.terminated and end.reward == 1
    assert play(tasks, "<think>so</think><answer>41</answer>")[0].reward == pytest.approx(0.2)


def test_tools_are_offered_called_and_counted():
    tasks = VerifiersTasks(environment=FILE + "tools", arguments={"max_turns": 3})
    (tool,) = tasks[1].columns["tools"]
    assert tool["function"]["name"] == "add" and tool["function"]["parameters"]["required"] == ["a", "b"]
    answer, end = play(tasks, "I add." + written("add", {"a": 30, "b": 12}), "42")
    assert answer.observation == [{"role": "tool", "content": "42"}] and end.reward == 1 and end.terminated
    wrong, other, cut = play(
        tasks, written("add", {"a": 30}), written("sub", {}) + written("add", {"a": 1, "b": 1}), written("add", {})
    )
    assert "missing 1 required" in wrong.observation[0]["content"]
    assert [one["content"] for one in other.observation] == ["'sub'", "2"]
    assert cut.truncated and not cut.terminated and cut.reward == 0
    assert play(tasks, "42")[0].reward == 0  # without a call, by its own rubric


def test_the_rubric_agrees_with_the_package_itself():
    """The same conversation by their own client and their own loop."""
    tasks = VerifiersTasks(environment=FILE + "asked")
    from verifiers.legacy.types import Response, ResponseMessage

    from gimbal.environments import verifiers as ours

    made = ours._loaded(FILE + "asked", "{}")
    for text in ("<think>so</think><answer>42</answer>", "42", "<answer>42</answer>"):

        async def ask(prompt, text=text):
            said = ResponseMessage(content=text, finish_reason="stop", is_truncated=False)
            return Response(id="x", created=0, model="x", message=said)

        state = asyncio.run(made._run_rollout_state(dict(made.get_dataset()[1]), ours._client(ask), "x", {}))
        assert play(tasks, text)[0].reward == state["reward"]


def test_an_own_loop_with_an_own_state():
    tasks = VerifiersTasks(environment=FILE + "guessing")
    moments = play(tasks, "x", "50", "30", "42", "so it is")
    assert [one.observation[0]["content"] for one in moments[:4]] == ["A number.", "Lower.", "Higher.", "Yes."]
    assert moments[-1].reward == 0.25 and moments[-1].terminated


@pytest.mark.parametrize(
    "turns, fault, sentence",
    [(["fall"], "sandbox", "SandboxError: it is gone"), (["x"] * 6, "environment", "quick: KeyError: 'found'")],
)
def test_what_breaks_is_typed_and_no_reward(turns, fault, sentence):
    with pytest.raises(Failure, match=sentence) as raised:
        play(VerifiersTasks(environment=FILE + "guessing"), *turns)
    assert raised.value.fault == fault


def test_what_its_code_raises_is_raised_and_a_reward_function_may_be_taken_as_0():
    tasks = VerifiersTasks(environment=FILE + "guessing")
    with pytest.raises(OSError, match="no disk"):
        play(tasks, "raise")
    assert play(tasks, *["x"] * 6, strict=False)[-1].reward == 0


def test_refused_by_name():
    with pytest.raises(ValueError, match="together scores whole groups"):
        VerifiersTasks(environment=FILE + "together")[0]
    with pytest.raises(ValueError, match="add makes a int"):
        VerifiersTasks(environment=FILE + "add", arguments={"a": 1, "b": 2})[0]
    with pytest.raises(ValueError, match="no column environment"):
        Verifiers().open().reset(Task(id="other"), 0)


def test_ctrl_c_stays_ours():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    VerifiersTasks(environment=FILE + "asked", arguments={})[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_many_at_once_in_threads_keep_apart(tmp_path):
    policy = CausalLM(model=str(hermes.saved(tmp_path))).load()
    tasks = VerifiersTasks(environment=FILE + "tools")

    def solution(task):
        a, b = (int(one) for one in task.columns["messages"][-1]["content"].rstrip("?").split(" + "))
        return [written("add", {"a": a, "b": b}), str(a + b)]

    live = Driven(engine=hermes.Solver(solution=solution), workflow=Dialogue(tool=Verifiers())).start(policy)
    for index in range(6):
        for sample in range(4):
            live.submit(
                Request(group=index, task=tasks[index], sample=sample, sampling=Sampling(max_length=3000), seed=1)
            )
    done = drained(live)
    assert len(done) == 24 and all(item.outcome.earned == 1 for item in done.values())


def test_an_environment_of_the_package_itself():
    """reasoning-gym's, with all its parts their own."""
    place = "verifiers.legacy.envs.integrations.reasoninggym_env:ReasoningGymEnv"
    arguments = {"gym": "leg_counting", "num_train_examples": 4, "num_eval_examples": 2}
    tasks = VerifiersTasks(environment=place, arguments=arguments)
    from gimbal.environments import verifiers as ours

    made = ours._loaded(place, tasks[0].columns["arguments"])
    for index in range(4):
        right = made.rg_dataset[index]["answer"]
        assert play(tasks, f"<answer>{right}</answer>", index=index)[0].reward == 1
        assert play(tasks, "", index=index)[0].reward == 0
    assert len(VerifiersTasks(environment=place, arguments=arguments, split="eval")) == 2


def test_the_recipe_of_the_terminal_runs_one_with_its_tasks_alone_changed(tmp_path, monkeypatch):
    """With the model that ships: it looks, is paid by the rubric, and learns from that."""
    monkeypatch.chdir(tmp_path)
    small = ["steps=2", "prompts_per_step=2", "num_generations=4", "threads=1", "--name", "own"]
    assert cli.main(["train", "terminal", f"tasks=VerifiersTasks(environment='{FILE}console')", *small]) == 0
    steps, rows = (
        [json.loads(line) for line in (tmp_path / "runs" / "own" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("metrics", "rollouts")
    )
    assert any(0 < step["reward/mean"] < 1 and step["grad_norm"] > 0 for step in steps)
    assert any(len(row["acts"]) > 1 for row in rows) and all(row["score"] in (0, 1) for row in rows)
