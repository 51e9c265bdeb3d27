"""One conformance for all environments of the package, which the harness finds, and the faults that it catches."""

import importlib
import inspect
import pickle
import pkgutil
import re
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import own_text
import own_tools
import serving

import gimbal.environments
from gimbal.config.parts import plain, read
from gimbal.environments.agentdojo import AgentDojo, AgentDojoTasks
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.environments.bfcl import Bfcl, BfclTasks
from gimbal.environments.calls import written as call
from gimbal.environments.chore_kinds import KINDS
from gimbal.environments.chores import Chores
from gimbal.environments.conformance import Conformance
from gimbal.environments.functions import Functions
from gimbal.environments.games import Deals, Game
from gimbal.environments.gym import Gymnasium, Registered
from gimbal.environments.gym_text import TextGymnasiumTasks
from gimbal.environments.lookups import Lookups, Pages, page
from gimbal.environments.mcp import Mcp
from gimbal.environments.minigrid import MiniGrid, MiniGridTasks
from gimbal.environments.natural_deduction import NaturalDeduction, Theorems
from gimbal.environments.one_program import OneProgram
from gimbal.environments.openenv import OpenEnv
from gimbal.environments.program import Program, Said, replied
from gimbal.environments.recall import Recall, Streams
from gimbal.environments.several import Several
from gimbal.environments.shared_sums import SharedSums, SumStages
from gimbal.environments.terminal import Terminal
from gimbal.environments.textarena import TextArena, TextArenaMatch, TextArenaTasks
from gimbal.environments.textworld import TextWorld, TextWorldTasks
from gimbal.environments.tools import Calculator
from gimbal.environments.verifiers import Verifiers, VerifiersTasks
from gimbal.records import Task


def found(kind):
    """Final classes of this kind in the package."""
    classes = {}
    for module in pkgutil.walk_packages(gimbal.environments.__path__, "gimbal.environments."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(thing) and issubclass(thing, kind) and not name.startswith("Abstract"):
                classes[name] = thing
    return classes


def answered(text):
    """A tool scores 1 where one of its answers holds this."""
    return lambda task, moments: float(any(text in str(moment.observation) for moment in moments))


def once(text):
    return lambda task, seen: text if seen is None else None


class Solved:
    """Says the turns of a package's own solution, one after the other."""

    def __init__(self, solution, begins=None):
        self.solution, self.begins, self.left = solution, begins, iter(())

    def __call__(self, task, seen):
        if seen is None or (self.begins and str(seen).startswith(self.begins)):
            self.left = iter(self.solution(task))
        return next(self.left)


def solved(spec, tasks, indices):
    """All tasks are played in test_packages.py; here are some, several times each."""
    return Conformance(
        spec=spec,
        tasks=[tasks[at] for at in indices],
        oracle=Solved(tasks.solution),
        null=lambda task, seen: "",
        longest=60,
    )


def said(text):
    """An agent's program is first given nothing, and then its answer."""
    said = Said(text=text, ids=(1,), prompt_ids=(1,), logprobs=(0.0,), versions=(0,), stop="stop", pieces=("",))
    return lambda task, seen: () if seen is None else (replied([said]),)


class SumsByTool(VerifiersTasks):
    """own_verifiers.py:tools, with a solution."""

    def solution(self, task):
        a, _, b = task.columns["messages"][-1]["content"].rstrip("?").split()
        return [call("add", {"a": int(a), "b": int(b)}), str(int(a) + int(b))]


class Walked:
    """Says the commands of TextWorld's own walkthroughs."""

    def __init__(self):
        self.of, self.left = None, iter(())

    def __call__(self, task, seen):
        if task.id != self.of:
            self.of, self.left = task.id, iter(WORLDS[0].solution(task))
        return next(self.left)


class Halving:
    """Guesses the middle of what is left, as it is told higher or lower; towers are moved by heart."""

    def __init__(self, plain=False):
        self.plain = plain

    def __call__(self, task, seen):
        if "1 to 20" in seen or "between 1 and 20" in seen or "Tower of Hanoi" in seen:
            self.low, self.high, self.moves = 1, 20, iter(["AC", "AB", "CB", "AC", "BA", "BC", "AC"])
        elif "higher" in seen or "lower" in seen:
            self.low, self.high = (self.at + 1, self.high) if "higher" in seen else (self.low, self.at - 1)
        if "Hanoi" in task.source:
            return " ".join(next(self.moves))  # the package puts brackets around it
        self.at = (self.low + self.high) // 2
        return f"[{self.at}]" if task.source and not self.plain else str(self.at)


WORLDS = [TextWorldTasks(rooms=r, objects=o, quest=q) for r, o, q in ((3, 4, 3), (1, 1, 1), (5, 6, 4))]
ARENAS = [TextArenaTasks(game=name) for name in ("TowerOfHanoi-v0", "GuessTheNumber-v0")]
BOARD = TextArenaTasks(game="TicTacToe-v0-train")
SPEAKING = TextGymnasiumTasks(environment=f"{own_text.__file__}:Guess")
LEVELS = [MiniGridTasks(level=f"BabyAI-{name}-v0") for name in ("GoToRedBallGrey", "OpenDoor", "PickupLoc")]
BALANCED = np.array([0.0, 0.5, 10.0, 2.0])  # a controller by hand that keeps the pole up for as long as it is let
CALL = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
# Of each environment: who solves it, who does nothing of use, and what these earn.
CASES = {
    "Calculator": lambda: Conformance(
        spec=Calculator(), tasks=[Task(id="sum")], oracle=once("12+30="), null=once("="), score=answered("42")
    ),
    "Functions": lambda: Conformance(
        spec=Functions(functions=(own_tools.search,)),
        tasks=[Task(id="text"), Task(id="chat", columns={"messages": [{"role": "user", "content": "hi"}]})],
        oracle=once(CALL),
        null=once("<tool_call>{}</tool_call>"),
        score=answered("5 pages of x"),
    ),
    "Program": lambda: Conformance(
        spec=Program(program=f"{own_tools.__file__}:ask_once"),
        tasks=[Task(id="asked", prompt="yes or no?")],
        oracle=said("yes"),
        null=said("no"),
        score=lambda task, moments: moments[-1].observation["score"],
    ),
    "Registered": lambda: Conformance(
        spec=Registered(source="CartPole-v1"),
        tasks=[Gymnasium()[0]],
        oracle=lambda task, seen: np.array([int(BALANCED @ seen > 0)]),
        null=lambda task, seen: np.array([0]),
        best=500.0,
        worst=11.0,  # a pole that is always pushed one way falls in 8 to 11 steps
    ),
    # Whoever bets wins the ante of somebody who always passes, whatever the cards; "x" is no action.
    "Game": lambda: Conformance(
        spec=Game(),
        tasks=[Deals()[index] for index in range(12)],
        oracle=lambda task, turn: str(1 - turn.seat),
        null=lambda task, turn: "x",
        best=1.0,
        worst=-2.0,
        score=lambda task, moments: moments[-1].observation.returns[0],
    ),
    "AgentDojo": lambda: solved(AgentDojo(), AgentDojoTasks(), range(0, 92, 9)),
    "Bfcl": lambda: solved(Bfcl(), BfclTasks(), range(0, 200, 4)),
    "Verifiers": lambda: solved(
        Verifiers(), SumsByTool(environment=f"{Path(__file__).parent}/own_verifiers.py:tools"), range(6)
    ),
    # The package's reward falls with each step; a mission that is accomplished earns more than 0.
    "MiniGrid": lambda: Conformance(
        spec=MiniGrid(),
        tasks=[tasks[at] for tasks in LEVELS for at in range(8)],
        oracle=Solved(LEVELS[0].solution, begins="Mission: "),
        null=lambda task, seen: "done",
        score=lambda task, moments: float(moments[-1].reward > 0),
    ),
    "TextArena": lambda: Conformance(
        spec=TextArena(),
        tasks=[tasks[at] for tasks in ARENAS for at in range(4)],
        oracle=Halving(),
        null=lambda task, seen: "",
    ),
    # The first seat takes the first free square and the other one the last: 0, 8, 1, 7, 2.
    "TextArenaMatch": lambda: Conformance(
        spec=TextArenaMatch(),
        tasks=[BOARD[0]],
        oracle=lambda task, turn: re.findall(r"\[\d\]", turn.seen.partition("Available")[2])[-turn.seat],
        null=lambda task, turn: "x",
        worst=-1.0,
        score=lambda task, moments: moments[-1].observation.returns[0],
    ),
    "TextGymnasium": lambda: Conformance(
        spec=SPEAKING.solved_in,
        tasks=[SPEAKING[at] for at in range(6)],
        oracle=Halving(plain=True),
        null=lambda task, seen: None if "That is no" in str(seen) else "",
    ),
    "TextWorld": lambda: Conformance(
        spec=TextWorld(),
        tasks=[tasks[at] for tasks in WORLDS for at in range(3)],
        oracle=Walked(),
        null=lambda task, seen: None if seen.startswith("-=") else "look",
    ),
    "OpenEnv": lambda: Conformance(
        spec=OpenEnv(address=serving.guessing()[1], action="number", shown="hint"),
        tasks=[Task(id=f"guess/{seed}", seed=seed) for seed in range(4)],
        oracle=Halving(),
        null=lambda task, seen: None if "whole number" in seen or "integer" in seen else "x",
    ),
    "Mcp": lambda: Conformance(
        spec=Mcp(command=sys.executable, arguments=(f"{Path(__file__).parent}/own_server.py",)),
        tasks=[Task(id="text")],
        oracle=once(call("note", {"name": "a", "text": "42"})),
        null=once("<tool_call>{}</tool_call>"),
        score=answered("1 notes"),
    ),
    "Recall": lambda: Conformance(
        spec=Recall(),
        tasks=[Streams()[index] for index in range(6)],
        oracle=lambda task, seen: task.answer if seen == "=" else "",
        null=lambda task, seen: "",
    ),
    "Several": lambda: Conformance(
        spec=Several(of=Count(), count=2),
        tasks=COUNT.tasks,
        oracle=lambda task, seen: (1, 1),
        null=lambda task, seen: (1, 0),  # the second gives up at once, and waits for the first
        score=lambda task, moments: float(moments[-1].observation[1].reward),
    ),
}


class Solution:
    """Says the programs of a task's solution one after the other, then what it was told, or the answer."""

    def __call__(self, task, seen):
        self.turns = [f"${program}" for program in task.columns["programs"]] if seen is None else self.turns[1:]
        return self.turns[0] if self.turns else f"<answer>{task.answer}</answer>"


def added(task, seen):
    """The working of a shared sum behind its first two terms."""
    first, sign, second, *rest = task.columns["metadata"]["expression"].split()
    total, steps = int(first) + int(sign + second), []
    for sign, term in zip(rest[::2], rest[1::2], strict=True):
        steps.append(f"{total}{sign}{term}={total + int(sign + term)}")
        total += int(sign + term)
    return f"<think>{' '.join(steps)}</think><answer>{task.answer}</answer>"


CASES["SumStages"] = lambda: Conformance(
    spec=SumStages(),
    tasks=[SharedSums()[index] for index in range(6)],
    oracle=added,
    null=lambda task, seen: "",
)
CASES["NaturalDeduction"] = lambda: Conformance(
    spec=NaturalDeduction(),
    tasks=[Theorems()[index] for index in range(12)],
    oracle=Solved(lambda task: task.columns["tactics"]),
    null=lambda task, seen: None if seen is not None else "x",
)
CASES["Pages"] = lambda: Conformance(
    spec=Pages(),
    tasks=[Lookups(hops=1)[index] for index in range(6)],
    oracle=lambda task, seen: f"{task.prompt[0]}?" if seen is None else seen[seen.index(task.prompt[0]) + 1],
    null=lambda task, seen: "",
    score=lambda task, moments: float(page(task, task.prompt[0]) in [one.observation for one in moments]),
)
CASES["OneProgram"] = lambda: Conformance(
    spec=OneProgram(),
    tasks=[task for task in map(Chores(split="held_out").__getitem__, range(40)) if len(task.columns["programs"]) == 1],
    oracle=lambda task, seen: "$" + task.columns["programs"][0],
    null=lambda task, seen: "",
)
CASES["Terminal"] = lambda: Conformance(
    spec=Terminal(),
    tasks=[Chores(kinds=(kind,), split="held_out")[0] for kind in KINDS],
    oracle=Solution(),
    null=lambda task, seen: "<answer></answer>",
)
NEEDS = {
    "Game": "pyspiel",
    "Registered": "gymnasium",
    **dict.fromkeys(("OneProgram", "Terminal"), "pydantic_monty"),
    **dict.fromkeys(("AgentDojo", "AgentDojoTasks"), "agentdojo"),
    **dict.fromkeys(("Bfcl", "BfclTasks"), "bfcl_eval"),
    "Verifiers": "verifiers.legacy",
    "Mcp": "mcp",
    "MiniGrid": "minigrid",
    **dict.fromkeys(("TextArena", "TextArenaMatch", "TextArenaTasks"), "textarena"),
    **dict.fromkeys(("TextWorld", "TextWorldTasks"), "textworld"),
    "OpenEnv": "openenv",
}


def here(module):
    """Whether a module can be found, and the package that it is in."""
    package = module.partition(".")[0]
    return find_spec(package) is not None and find_spec(module) is not None


def installed(name):
    if name in NEEDS and not here(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed (make test-environments)")


@pytest.mark.parametrize("name", sorted(found(AbstractEnvironmentSpec)))
def test_it_conforms(name):
    installed(name)
    case = CASES[name]()  # a new environment says there who solves it
    case.check()
    assert read(plain(case.spec), AbstractEnvironmentSpec, "environment") == case.spec, "it is saved with the run"
    assert pickle.loads(pickle.dumps(case.spec)) == case.spec, "it travels to where it acts"


@dataclass(frozen=True, kw_only=True)
class Count(AbstractEnvironmentSpec):
    """Count up to the task's answer. ``how`` is what is wrong with it."""

    how: str = ""

    def open(self):
        return Counting(self.how)


TOTAL = [0]


class Counting(AbstractEnvironment):
    def __init__(self, how):
        self.how, self.at, self.others = how, [0], set()

    def reset(self, task, seed):
        self.others.add(task.id)
        if self.how == "remembers" and len(self.others) > 1:  # as gymnasium's BipedalWalker does
            self.at, self.goal = [0], int(task.answer)
            return len(self.others)
        self.at, self.goal = (TOTAL if self.how == "shared" else [0]), int(task.answer)
        if self.how != "kept":
            self.at[0] = 0
        if self.how == "kept":
            TOTAL[0] += 1
            return TOTAL[0]
        return 0

    def step(self, action):
        self.at[0] += action
        over = self.at[0] == self.goal or not action
        reward = float(self.at[0] == self.goal) * (0.5 if self.how == "half" else 1.0) + (self.how == "gift")
        if self.how == "nan":
            reward = float("nan")
        if self.how == "bare":
            return self.at[0]
        return Moment(observation=self.at[0], reward=reward, terminated=over and self.how != "endless")

    def fork(self):
        other = Counting(self.how)
        other.at, other.goal = (self.at if self.how == "one" else [*self.at]), self.goal
        return other


COUNT = Conformance(
    spec=Count(),
    tasks=[Task(id="4", answer="4"), Task(id="2", answer="2")],
    oracle=lambda task, seen: 1,
    null=lambda task, seen: 0,
    longest=20,
)


@pytest.mark.parametrize(
    "how, sentence",
    [
        ("half", r"Count, task 4: the oracle scores 0.5, and 1 is to be had"),
        ("gift", r"the null policy scores 1, and 0 is all"),
        ("kept", r"after the same seed and 0 actions another environment answers otherwise"),
        ("endless", r"has not come to an end after 20 actions"),
        ("nan", r"the reward nan"),
        ("bare", r"returns a int, not a Moment"),
        (
            "remembers",
            r"after the same seed and 0 actions one that was reset for another task before answers otherwise",
        ),
        ("one", r"a copy made after 2 actions and what it is of do not go on alike"),
    ],
)
def test_what_does_not_conform_is_named(how, sentence):
    COUNT.check()
    with pytest.raises(ValueError, match=sentence):
        replace(COUNT, spec=Count(how=how)).check()


# Made of other tasks or of files, which the tests of each give it.
OF_OTHERS = {
    "Alternating",
    "Dataset",
    "EditSequences",
    "FormPairs",
    "HiddenQuestion",
    "Mixed",
    "MultipleChoice",
    "Reworded",
    "Rows",
    "Segments",
    "Split",
    "TextGymnasiumTasks",
    "VerifiersTasks",
    "Within",
}


@pytest.mark.parametrize("name", sorted(found(AbstractTasks).keys() - OF_OTHERS))
def test_the_same_index_is_the_same_task(name):
    """To the byte, whatever was asked for before, and each index another one."""
    installed(name)
    one, other = (found(AbstractTasks)[name]() for _ in range(2))
    first = {index: pickle.dumps(one[index]) for index in (0, 1, 5)}
    again = {index: pickle.dumps(other[index]) for index in (5, 0, 1)}
    assert first == again and len(set(first.values())) == 3
    assert len({one[index].id for index in first}) == 3
