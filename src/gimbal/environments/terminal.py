"""A terminal: programs that a policy writes are run in a sandbox, and what they say is what it sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.environments.calls import answer, calls
from gimbal.environments.functions import called
from gimbal.environments.signatures import schema
from gimbal.records import Fault, Task, is_chat
from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.live import AbstractSandbox, OverLimit, SandboxError, Untrusted
from gimbal.sandbox.monty import Monty

PLAIN = "$"  # begins a program in the turn of a model that was not taught to call tools
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
NOTHING = "(no output)"
MOST_CALLS = 5  # of one turn, so that programs at their limit do not add up to a turn that is late


def python(code: str) -> str:
    """Run a Python program in your sandbox, and see what it prints. When you are done, end with <answer>...</answer>.

    Args:
        code: the whole program
    """
    raise NotImplementedError("only its schema is used")


def shell(command: str) -> str:
    """Run a shell command in your sandbox, and see what it prints. When you are done, end with <answer>...</answer>.

    Args:
        command: for /bin/sh
    """
    raise NotImplementedError("only its schema is used")


@dataclass(frozen=True, kw_only=True)
class Terminal(AbstractEnvironmentSpec):
    """A sandbox for each episode, in which the policy's programs run; its answer is checked there.

    A turn that calls a tool (``python``, and where the sandbox runs commands ``shell``; by <tool_call>{"name": "python", "arguments":
    {"code": "..."}}</tool_call> as chat templates have it, up to 5 in one turn) or begins with "$" and a program is answered
    with the output and errors, cut at their front to ``most`` characters. Any other turn ends the episode: it is the answer, or what
    it has between <answer> and </answer>.

    The task's column ``files`` (names and texts) is there from the beginning; files last over the episode, in ``Monty`` names too. The
    last turn earns 1 or 0 by its column ``check``:

    - {"file": f, "holds": text}: the file is read, and compared here, but for what is blank at its end;
    - {"file": f, "calls": expression, "holds": text}: a new sandbox runs the file's text and then prints the expression;
    - none: the answer is compared with the task's ``answer``.

    What is expected never enters a sandbox, so a program can neither read it nor say in the check's place that it holds.

    A program that fails, or passes a limit of the sandbox, is the policy's own doing: it is told so, and goes on. A sandbox that is
    lost is nobody's: the episode ends as a ``sandbox_error``.
    """

    pays: ClassVar[bool] = True
    sandbox: AbstractSandboxSpec = Monty(timeout=10.0)
    most: int = 2000

    def __post_init__(self) -> None:
        if self.most < 8:
            raise ValueError(f"Terminal.most is {self.most}; it must be at least 8 characters of what a program says")

    @property
    def fault(self) -> Fault:
        return "sandbox"

    @property
    def functions(self) -> tuple[Callable[[str], str], ...]:
        return (python, shell) if self.sandbox.commands else (python,)

    @cached_property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(map(schema, self.functions))

    def open(self) -> TerminalSession:
        return TerminalSession(self)


class TerminalSession(AbstractEnvironment):
    """One episode's sandbox, opened at its first program: with some rungs it is a process, and most episodes wait for their turn."""

    def __init__(self, spec: Terminal) -> None:
        self.spec = spec
        self.task: Task | None = None
        self.sandbox: AbstractSandbox | None = None

    def reset(self, task: Task, seed: int) -> None:
        self.close()
        self.task = task

    def step(self, action: str) -> Moment:
        assert self.task is not None, "reset comes before step"
        try:
            asked = programs(action, self.spec)
            if not asked:
                return Moment(reward=self._earned(action), terminated=True)
            answers = [self._ran(program) if wrong == "" else (wrong, True) for _, program, wrong in asked[:MOST_CALLS]]
            answers += [(f"error: it was not run; a turn may have {MOST_CALLS} calls", True)] * (
                len(asked) - MOST_CALLS
            )
        except Untrusted:  # of no episode's
            raise
        except SandboxError as error:
            raise Failure(f"{type(self.spec.sandbox).__name__} {error}", "sandbox") from error
        failed = sum(broke for _, broke in answers)
        if is_chat(self.task.columns.get("messages")):
            told: Any = [answer(name, said) for (name, _, _), (said, _) in zip(asked, answers, strict=True)]
        else:
            told = "".join(f"\n{said}\n" for said, _ in answers)
        return Moment(observation=told, calls=len(answers), errors=failed)

    def fork(self) -> TerminalSession:
        other = TerminalSession(self.spec)
        other.task, other.sandbox = self.task, self.sandbox and self.sandbox.fork()
        return other

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.close()
        self.sandbox = None

    @property
    def files(self) -> Mapping[str, str]:
        assert self.task is not None, "reset comes first"
        return self.task.columns.get("files") or {}

    @property
    def opened(self) -> AbstractSandbox:
        if self.sandbox is None:
            self.sandbox = self.spec.sandbox.open()
            for name, text in self.files.items():
                self.sandbox.write(name, text.encode())
        return self.sandbox

    def _ran(self, program: str | Sequence[str]) -> tuple[str, bool]:
        """(What is told of it, whether it failed.)"""
        try:
            outcome = self.opened.exec(program)
        except OverLimit as error:
            return shortened(f"error: the program {error}", self.spec.most), True
        said = (outcome.output + outcome.errors).rstrip("\n")
        return shortened(said, self.spec.most) or NOTHING, outcome.code != 0

    def _earned(self, turn: str) -> float:
        assert self.task is not None, "reset comes first"
        check = self.task.columns.get("check") or {}
        if not check:
            given = ANSWER.findall(turn)
            return float((given[-1] if given else turn).strip() == (self.task.answer or "").strip())
        if self.sandbox is None and check["file"] not in self.files:
            return 0.0
        try:
            content = self.opened.read(check["file"]).decode(errors="replace")
        except (OSError, OverLimit):  # it is not there, or too large
            return 0.0
        if "calls" not in check:
            return float(content.rstrip() == check["holds"].rstrip())
        return float(tried(self.spec.sandbox, content, check["calls"]) == check["holds"])


def tried(sandbox: AbstractSandboxSpec, source: str, calls: str) -> str | None:
    """What the expression ``calls`` prints behind this source, in a new sandbox; None where it does not get there. The names of the
    session in which the source was written, and its other files, are not there."""
    live = sandbox.open()
    try:
        outcome = live.exec(f"{source}\nprint(repr({calls}))")
    except OverLimit:
        return None
    finally:
        live.close()
    lines = outcome.output.splitlines()
    return lines[-1] if outcome.code == 0 and lines else None


def programs(turn: str, terminal: Terminal) -> list[tuple[str, str | Sequence[str], str]]:
    """(Tool, what is to be run, what is wrong with the call) of each call in a turn, in order."""
    if turn.lstrip().startswith(PLAIN):
        return [(python.__name__, turn.lstrip().removeprefix(PLAIN).strip(), "")]
    found: list[tuple[str, str | Sequence[str], str]] = []
    by_name = {function.__name__: function for function in terminal.functions}
    for call in calls(turn):
        name, arguments, wrong = called(call, by_name)
        command = ["/bin/sh", "-c", arguments.get("command", "")]
        found.append(
            (name, command if name == shell.__name__ else arguments.get("code", ""), wrong and f"error: {wrong}")
        )
    return found


def shortened(text: str, most: int) -> str:
    """At most so many characters, of the end: there stands what went wrong."""
    return text if len(text) <= most else "..." + text[3 - most :]
