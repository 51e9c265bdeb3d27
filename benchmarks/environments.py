"""What a turn in an environment of another package costs beside the package itself: its own solutions, played by its own functions, by
ours in the same thread, and by ours as a run does it (a thread, a history for the resume). Medians over all turns, and the ninth tenth.

    make test-environments && .venv-environments/bin/python benchmarks/environments.py --out benchmarks/environments.json

``own`` is ours less the package's: reading the calls of a text, looking them up, writing the messages. Rendering and encoding an answer
by the chat template is not in it: it depends on the length of the chat, and is the same for every tool. On a busy machine the thread
waits for its turn longer than it works: ``chrt -r 1 python benchmarks/environments.py`` (as root) is served first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gimbal.environments import bfcl, verifiers
from gimbal.environments.agentdojo import AgentDojo, AgentDojoTasks, _of
from gimbal.environments.base import AbstractEnvironmentSpec, AbstractTasks
from gimbal.environments.bfcl import Bfcl, BfclTasks
from gimbal.environments.calls import calls, written
from gimbal.environments.verifiers import Verifiers, VerifiersTasks
from gimbal.records import Task
from gimbal.workflows.acting import Seat
from gimbal.workflows.base import Act

OWN = Path(__file__).parents[1] / "tests" / "environments" / "own_verifiers.py"


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def in_a_thread(spec: AbstractEnvironmentSpec, task: Task, turns: list[str]) -> Iterator[float]:
    one = Seat(spec, task, 0)

    def act(action: str | None) -> None:
        what = Act(environment=spec, action=action)
        place = one.enter(action)
        moment = one.answer(one.begin(what, place), what, place)
        assert not moment.error, moment.error

    act(None)
    yield from (timed(lambda turn=turn: act(turn)) for turn in turns)
    one.close()


def directly(spec: AbstractEnvironmentSpec, task: Task, turns: list[str]) -> Iterator[float]:
    live = spec.open()
    live.reset(task, 0)
    yield from (timed(lambda turn=turn: live.step(turn)) for turn in turns)
    live.close()


def of_agentdojo(task: Task, turns: list[str]) -> Iterator[float]:
    """The package's own runtime and check."""
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
    from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime

    suite, user = _of(task)
    world = user.init_environment(suite.load_and_inject_default_environment({}))
    before, runtime, made = world.model_copy(deep=True), FunctionsRuntime(suite.tools), []

    def run(steps: list[FunctionCall]) -> None:
        for one in steps:
            made.append(one)
            tool_result_to_str(runtime.run_function(world, one.function, one.args)[0])

    def check(text: str) -> None:
        if user.utility_from_traces(text, before, world, made) is None:
            user.utility(text, before, world)

    for turn in turns:
        steps = [FunctionCall(function=call.name, args=dict(call.arguments)) for call in calls(turn)]
        yield timed((lambda steps=steps: run(steps)) if steps else lambda turn=turn: check(turn))


def of_bfcl(task: Task, turns: list[str]) -> Iterator[float]:
    """The package's own executor, which evaluates Python, and its own checks."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as package
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

    entry = bfcl._entry(task)
    apart = {name: entry[name] for name in ("initial_config", "involved_classes")} | {"test_entry_id": entry["id"]}
    for who in ("mine", "theirs"):
        execute_multi_turn_func_call([], **apart, model_name=f"{who}_{time.perf_counter_ns()}")
    names, said, place = [f"{who}_{time.perf_counter_ns()}" for who in ("mine", "theirs")], [], 0
    for who in names:  # the APIs are made before the clock runs, as ours are
        execute_multi_turn_func_call([], **apart, model_name=who)

    def run(wanted: list[str]) -> None:
        said.extend(execute_multi_turn_func_call(wanted, **apart, model_name=names[0])[0])

    def check(wanted: list[str]) -> None:
        right, theirs = execute_multi_turn_func_call(wanted, **apart, model_name=names[1])
        _, mine = execute_multi_turn_func_call([], **apart, model_name=names[0])
        package.state_checker(mine, theirs)
        package.response_checker(said, right, 0)

    for turn in turns:
        wanted = entry["ground_truth"][place]
        yield timed(lambda wanted=wanted, turn=turn: run(wanted) if calls(turn) else check(wanted))
        place += not calls(turn)


def of_verifiers(task: Task, turns: list[str]) -> Iterator[float]:
    """The package's own loop with a client that answers at once: a rollout and its score, spread over its turns."""
    from verifiers.legacy.types import Response, ResponseMessage, ToolCall

    made = verifiers._loaded(task.columns["environment"], task.columns["arguments"])
    row = dict(made.get_dataset()[task.columns["row"]])
    answers = []
    for turn in turns:
        asked = [ToolCall(id="0", name=call.name, arguments=json.dumps(dict(call.arguments))) for call in calls(turn)]
        message = ResponseMessage(
            content=None if asked else turn, tool_calls=asked or None, finish_reason="stop", is_truncated=False
        )
        answers.append(Response(id="0", created=0, model="m", message=message))
    left = iter(answers)

    async def ask(prompt: object) -> Response:
        return next(left)

    async def whole() -> float:
        start = time.perf_counter()
        await made._run_rollout_state(row, verifiers._client(ask), "m", {})
        return 1e3 * (time.perf_counter() - start)

    taken = asyncio.run(whole())
    yield from [taken / len(turns)] * len(turns)


def sums(task: Task) -> list[str]:
    a, _, b = task.columns["messages"][-1]["content"].rstrip("?").split()
    return [written("add", {"a": int(a), "b": int(b)}), str(int(a) + int(b))]


def cases() -> Iterator[
    tuple[str, AbstractTasks, AbstractEnvironmentSpec, Callable[..., Iterator[float]], Callable[[Task], list[str]]]
]:
    dojo, berkeley, own = AgentDojoTasks(every=True), BfclTasks(), VerifiersTasks(environment=f"{OWN}:tools")
    yield "agentdojo", dojo, AgentDojo(), of_agentdojo, dojo.solution
    yield "bfcl", berkeley, Bfcl(), of_bfcl, berkeley.solution
    yield "verifiers", own, Verifiers(), of_verifiers, sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for name, tasks, spec, package, solution in cases():
        found: dict[str, list[float]] = {"package": [], "ours": [], "thread": []}
        for index in range(len(tasks)):
            task = tasks[index]
            turns = solution(task)
            found["package"] += package(task, turns)
            found["ours"] += directly(spec, task, turns)
            found["thread"] += in_a_thread(spec, task, turns)
        middle = {f"{key}_ms": statistics.median(values) for key, values in found.items()}
        for key in ("ours", "thread"):  # turn by turn
            own = [one - other for one, other in zip(found[key], found["package"], strict=True)]
            middle |= {
                f"own_{key}_ms": statistics.median(own),
                f"own_{key}_p90_ms": statistics.quantiles(own, n=10)[-1],
            }
        rounded = {key: round(value, 3) for key, value in middle.items()}
        rows.append({"environment": name, "turns": len(found["ours"]), **rounded})
        print(json.dumps(rows[-1], indent=1), flush=True)
    if options.out:
        real_time = os.sched_getscheduler(0) != os.SCHED_OTHER
        record = {
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "real_time": real_time,
            "environments": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
