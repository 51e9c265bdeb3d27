"""Programs that are run against tests."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from gimbal.ops.edits import applied
from gimbal.records import Group, Task
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward
from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.live import AbstractSandbox, Lost, OverLimit
from gimbal.sandbox.monty import Monty


@dataclass(frozen=True, kw_only=True)
class PassesTests(AbstractReward):
    """1 if the program passes the tests of its task, else 0: ``columns["tests"]`` is a program that is run behind it, in a sandbox,
    and passes if its end is reached: unless it raises, a limit of the sandbox is reached, or the program ends by itself before.

    A program may still cheat asserts, by an object that says it equals anything: tests that look at types or texts see that.

    The program is between the last ``opening`` and the ``closing`` after it; two empty ones take all of the text. With ``edits`` the
    text is a sequence of edits, and the program is what they lead to (``ops.edits.applied``). Where the sandbox itself is lost, the
    rollout has no score: that is nobody's failure.
    """

    name: str = "tests"
    opening: str = ""
    closing: str = ""
    edits: bool = False
    sandbox: AbstractSandboxSpec = Monty()

    def accepts(self, task: Task) -> None:
        tests = task.columns.get("tests")
        if not isinstance(tests, str):
            has = "has none" if tests is None else f"has a {type(tests).__name__}: join its lines to one text"
            raise ValueError(f"PassesTests runs the column tests, a Python program, and task {task.id} {has}")

    def program(self, text: str) -> str | None:
        """The program in a text, if there is one."""
        found = extract(text, self.opening, self.closing) if self.opening or self.closing else text
        return applied(found) if self.edits and found is not None else found

    def __call__(self, group: Group) -> list[float | None]:
        self.accepts(group.task)
        programs = [self.program(rollout.text) for rollout in group.rollouts]
        start, passed = self.sandbox.open(), dict[str | None, float | None]({None: 0.0})
        try:
            for program in programs:
                if program not in passed:
                    passed[program] = _passes(start, f"{program}\n{group.task.columns['tests']}")
        finally:
            start.close()
        return [passed[program] for program in programs]


def _passes(start: AbstractSandbox, program: str) -> float | None:
    own, reached = start.fork(), secrets.token_hex(16)  # which the program cannot know and print by itself
    try:
        ran = own.exec(f"{program}\nprint({reached!r})")
        return float(ran.code == 0 and ran.output.rstrip().endswith(reached))
    except OverLimit:
        return 0.0
    except Lost:
        return None
    finally:
        own.close()
