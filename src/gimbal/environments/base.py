"""Where tasks come from, and what answers an action."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

import numpy as np

from gimbal.composition import AbstractPart, Advice, Composition, Verdict
from gimbal.records import Fault, Lateness, Task
from gimbal.rewards.paid import Paid

FAULTS: tuple[Fault, ...] = get_args(Fault)


def reason(fault: Fault, *, late: Lateness) -> str:
    """Under which a failed episode is counted: environment_error, agent_timeout, sandbox_setup_timeout, ..."""
    return f"{fault}_{'setup_' if late == 'setup' else ''}{'timeout' if late else 'error'}"


class AbstractTasks(AbstractPart, ABC):
    """A finite, indexable set of tasks; procedural ones are just large. The same index is always the same task."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Task: ...

    @property
    def ordered(self) -> bool:
        """Whether they are to be asked for in their order: a stream, which has shuffled itself."""
        return False

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of its tasks by name, where there are several and metrics are to tell them apart."""
        return ()

    @property
    def solved_in(self) -> AbstractEnvironmentSpec | None:
        """The environment of these tasks, where there is one in which alone they can be solved: a recipe given them by ``tasks`` acts
        in it."""
        return None

    def questions(self) -> np.ndarray:
        """A number for each task, alike where the same is asked. It says nothing in another process."""
        return np.array([question(self[index]) for index in range(len(self))], np.int64)

    def digests(self) -> dict[str, str]:
        """What tells on a resume that the data are not what they were: a digest of each file."""
        return {}


class AbstractGenerated(AbstractTasks):
    """``size`` tasks, each generated when it is asked for."""

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def task(self, index: int) -> Task:
        """The task of this index, from 0 to ``size`` - 1."""

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"there is no task {index} of {self.size}")
        return self.task(index)


def question(task: Task) -> int:
    """The same number for tasks that ask the same: of the same text, the same images, and the same files in a terminal."""
    files = json.dumps(task.columns.get("files"), sort_keys=True, default=str)
    return hash((task.asked, files, *task.columns.get("images", ())))


class Failure(Exception):
    """Raised by an environment that knows what broke: not the policy's doing, and no reward. ``fault`` is one of FAULTS, ``late``
    whether it is that a deadline passed."""

    def __init__(self, said: str, fault: str = "environment", *, late: bool = False) -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault is {fault!r}; choose {', '.join(FAULTS)}")
        super().__init__(said)
        self.fault: Fault = FAULTS[FAULTS.index(fault)]
        self.late = late


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What an environment answers: a vector, text or messages of a chat (None: it says nothing), and whether this is the end.

    ``terminated``: there is nothing more to be had. ``truncated``: it was cut off, and might have gone on. ``error`` says what broke,
    "" where nothing did: that is neither a success nor a failure, and must not pass for a reward of 0. ``fault``: whose it is;
    ``late``: it is that a deadline passed, which counts apart; "setup" where that was of its beginning.
    ``success``: whether its goal is reached now; None of one that does not say. ``cost``: what is to be held within a limit, apart from
    the reward; None of one that does not say.
    ``calls``: how many calls of a tool it answers, of which ``errors`` ended in an error of their own. ``begins``: what the next
    episode begins with, of an environment that goes on by itself where one has ended; None of one that is to be reset.
    ``each``: what each of several agents that act at once is answered; None of one that has ended before.
    """

    observation: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    error: str = ""
    fault: Fault = "environment"
    late: Lateness = False
    success: bool | None = None
    cost: float | None = None
    begins: Any = None
    each: tuple[Moment | None, ...] = ()
    calls: int = 0
    errors: int = 0
    seconds: float = field(default=0.0, compare=False)  # that it took, by the clock on the wall

    @property
    def failed(self) -> str:
        """What the error counts as."""
        return reason(self.fault, late=self.late)

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated or bool(self.error)

    @property
    def left(self) -> Any:
        """What there is to see now: of the next episode, where one has begun."""
        return self.observation if self.begins is None else self.begins


class AbstractEnvironment(ABC):
    """One live environment. Its calls come from threads, one at a time; none of them may rely on being in the same thread as the last.

    It must do the same again after the same ``reset`` and the same actions: that is how a resumed run gets one back, for no live
    environment is saved.
    """

    @abstractmethod
    def reset(self, task: Task, seed: int) -> Any:
        """Begin this task; the first observation."""

    @abstractmethod
    def step(self, action: Any) -> Moment: ...

    def step_several(self, others: Sequence[AbstractEnvironment], actions: Sequence[Any]) -> Iterator[Moment]:
        """A step of each of several of this kind, itself the first of them. One that can do all of them at once says so here."""
        for environment, action in zip(others, actions, strict=True):
            yield environment.step(action)

    def fork(self) -> AbstractEnvironment:
        """Another one in the very same state, which goes its own way. Where this raises NotImplementedError, one is brought to the
        same state by its seed and its actions."""
        raise NotImplementedError(f"{type(self).__name__} cannot be copied")

    def close(self) -> None:
        """It is not needed any more."""
        return


class AbstractEnvironmentSpec(AbstractPart, ABC):
    """The saved, frozen choice of an environment, which travels between processes; ``open`` makes a live one.

    ``pays``: its steps earn rewards, to which those of the run are added.
    """

    pays: ClassVar[bool] = False

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        first = next(iter(whole.run.rewards), None)
        if self.pays and first is not None and not isinstance(first, Paid):
            yield Advice(
                f"what {type(self).__name__} pays an episode is added to what the rewards give, and the first of these, {first.name}, "
                "decides which tasks count as solved (pass_rate, pass@1): rewards=() leaves what it pays, and reward='Paid(),...' adds "
                "both but lets it decide"
            )

    @property
    def triggers(self) -> tuple[str, ...]:
        """Strings that end a turn of a policy that writes; none: the policy ends its turns itself."""
        return ()

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """The functions that it offers to a model, as the chat template is given them."""
        return ()

    @property
    def fault(self) -> Fault:
        """Whose fault it is where it raises or is late, and does not say itself (``Failure``)."""
        return "environment"

    @property
    def repeats(self) -> bool:
        """Whether it answers the same to the same actions. A run ends where one that does cannot be brought back; of one that need not
        the episode alone is given up."""
        return True

    @abstractmethod
    def open(self) -> AbstractEnvironment: ...
