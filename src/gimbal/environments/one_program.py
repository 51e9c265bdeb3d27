"""One program is the whole of an attempt in a terminal, and how far it comes is told in stages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment
from gimbal.environments.terminal import PLAIN, Terminal, TerminalSession
from gimbal.records import Fault, Task

FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class OneProgram(AbstractEnvironmentSpec):
    """Runs the program in a text, in a sandbox of its own, and takes what it prints as the answer. Its reward is the share of three
    stages that the text passed, and it says what the program did:

    - it has a program, in a fence of three backticks (the last one) or as Terminal reads it: 1/3;
    - the program ends without an error: 2/3;
    - Terminal's check of the task holds: 1.

    A text without a program is an answer, and is worth 1 or 0. Made for workflows.PlanAndRepair.
    """

    terminal: Terminal = Terminal()

    @property
    def fault(self) -> Fault:
        return self.terminal.fault

    def open(self) -> AbstractEnvironment:
        return ProgramTrial(self.terminal.open())


class ProgramTrial(AbstractEnvironment):
    def __init__(self, session: TerminalSession) -> None:
        self.session = session

    def reset(self, task: Task, seed: int) -> None:
        self.session.reset(task, seed)

    def step(self, action: str) -> Moment:
        fenced = FENCED.findall(action)
        ran = self.session.step(PLAIN + fenced[-1] if fenced else action)
        if ran.terminated:
            return replace(ran, observation="" if ran.reward else "there is no program in it")
        told = ran.observation
        said = told.strip() if isinstance(told, str) else "\n".join(answer["content"] for answer in told)
        goal = 0.0 if ran.errors else self.session.step(f"<answer>{said}</answer>").reward
        reached = 1.0 if goal else 1 / 3 if ran.errors else 2 / 3
        return Moment(observation=said, reward=reached, terminated=True, calls=ran.calls, errors=ran.errors)

    def fork(self) -> ProgramTrial:
        return ProgramTrial(self.session.fork())

    def close(self) -> None:
        self.session.close()
