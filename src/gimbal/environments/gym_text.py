"""Environments with gymnasium's interface that show text and take text or a choice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from gimbal.config.own import told
from gimbal.config.parts import label
from gimbal.environments.base import AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.environments.gym import AbstractPlayed, opened, spaces_of
from gimbal.ops import stable_hash
from gimbal.records import Task

RULES = "You act in an environment that answers each of your turns. Write nothing but your action."
NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, kw_only=True)
class TextGymnasiumTasks(AbstractGenerated):
    """Task i is one episode of ``environment``, reset with a seed drawn from (``seed``, i), to be solved in ``TextGymnasium``.

    ``system`` opens a chat, in which what the environment shows is a user's message. ``chat=False`` is for models without a chat
    template: the prompt is the text of ``system``, a line, and what the environment shows; observations follow turns as they are, so
    they have to bring their own line breaks.
    """

    environment: str | Callable[..., Any]
    system: str = RULES
    chat: bool = True
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.environment, str):
            object.__setattr__(self, "environment", label(self.environment))
        if not self.system:
            raise ValueError(
                "system is empty; it is what a prompt begins with: for a model without a chat template give chat=False"
            )

    @property
    def solved_in(self) -> TextGymnasium:
        return TextGymnasium(environment=self.environment)

    def task(self, index: int) -> Task:
        source = str(self.environment)
        columns = {"messages": [{"role": "system", "content": self.system}]} if self.chat else {}
        prompt = "" if self.chat else f"{self.system}\n"
        seed = stable_hash("gymnasium text", source, self.seed, index) % 2**31
        return Task(id=f"{source}/{self.seed}/{index}", prompt=prompt, source=source, seed=seed, columns=columns)


@dataclass(frozen=True, kw_only=True)
class TextGymnasium(AbstractEnvironmentSpec):
    """A gymnasium environment whose observations are texts (``spaces.Text``): ``Dialogue(tool=TextGymnasium(environment=...))``.

    ``environment`` is a registered name, or your own class or function that makes one: ``file.py:make``, ``pkg.module:Class``. It is
    reset by the task's seed, so all samples of a task begin alike.

    The policy's turn is the action: of a ``Text`` space the turn itself, without white space around it where only that fits; of a
    ``Discrete`` one the last number in it. A turn that the space does not hold is no step: the policy is told what is one, and it
    counts in ``tool/failed_frac``. ``is_success`` in the info of a step says whether the goal is reached.
    """

    pays: ClassVar[bool] = True
    environment: str | Callable[..., Any]

    def __post_init__(self) -> None:
        if not isinstance(self.environment, str):
            object.__setattr__(self, "environment", label(self.environment))

    def open(self) -> Spoken:
        return Spoken(str(self.environment))


class Spoken(AbstractPlayed):
    """One live environment of texts."""

    def __init__(self, source: str) -> None:
        from gymnasium import spaces  # late: it is an extra

        self.source, self._env = source, opened(source)
        seen, acts = spaces_of(self._env, source)
        if not isinstance(seen, spaces.Text) or not isinstance(acts, spaces.Text | spaces.Discrete):
            raise ValueError(
                f"{source} shows {seen!s:.80} and takes {acts!s:.80}; a text (Text) is to be shown, and a text or a choice (Discrete) "
                "taken: register it with a wrapper that makes these; one of numbers is for control, tasks.environment=NAME"
            )
        self._read = _choice(acts) if isinstance(acts, spaces.Discrete) else _text(acts)

    def reset(self, task: Task, seed: int) -> str:
        return self._shown(self._begun(task.seed), "reset")

    def step(self, action: str) -> Moment:
        does, why = self._read(action)
        if why:
            return Moment(observation=why, calls=1, errors=1)
        seen, _, said = self._stepped(does)
        return Moment(observation=self._shown(seen, "step"), calls=1, **said)

    def _shown(self, seen: Any, call: str) -> str:
        if not isinstance(seen, str):
            raise ValueError(
                f"{self.source}.{call} returned the observation {told(seen)}; its observation_space is a Text"
            )
        return seen


Read = Callable[[str], tuple[Any, str]]  # a turn -> the action, and what the policy is told where it is none


def _choice(acts: Any) -> Read:
    first, last = int(acts.start), int(acts.start + acts.n) - 1

    def read(turn: str) -> tuple[Any, str]:
        found = NUMBER.findall(turn)
        valid = bool(found) and first <= int(found[-1]) <= last
        return (int(found[-1]), "") if valid else (None, f"That is no action; a number from {first} to {last} is one.")

    return read


def _text(acts: Any) -> Read:
    lengths = f"{acts.min_length} to {acts.max_length}"

    def read(turn: str) -> tuple[Any, str]:
        short = turn.strip()
        found = next((text for text in (turn, short) if acts.contains(text)), None)
        if found is not None:
            return found, ""
        odd = sorted(set(short) - set(acts.character_set))
        why = f"{odd[0]!r} is not allowed" if odd else f"{len(short)} characters, and {lengths} are allowed"
        return None, f"That is no action: {why}."

    return read
