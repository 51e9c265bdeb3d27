"""A run small enough for a test, with a reward that pays for digits: no worker process, and never constant over a group."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from gimbal.advantages import GroupNormalized
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, Plan
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.recipes.papers.denoising.masked_grpo import masked_grpo
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import Run, UpdateRun
from gimbal.workflows.agent import Agent


@dataclass(frozen=True, kw_only=True)
class Digits(AbstractReward):
    """The share of the text's characters that are digits."""

    name: str = "digits"

    def __call__(self, group: Group) -> list[float | None]:
        return [sum(c.isdigit() for c in r.text) / max(1, len(r.text)) for r in group.rollouts]


@cache
def read_once() -> TokenPolicy:
    policy = CausalLM().load()
    policy.model.config.num_hidden_layers = 2
    del policy.model.config.layer_types[2:], policy.model.model.layers[2:]
    return policy


@dataclass(frozen=True, kw_only=True)
class Shallow(AbstractPolicySpec):
    """gimbal-tiny with two of its five layers: as much to go wrong, in half the time."""

    family: ClassVar[Family] = CausalLM.family

    def load(self, seed: int = 0) -> TokenPolicy:
        return deepcopy(read_once())

    def at(self, directory: Path) -> CausalLM:
        return CausalLM(model=str(directory))


def described(**said: object) -> str:
    """The directory of a model that is nothing but a config.json: what is asked of a run before any is loaded."""
    directory = Path(tempfile.mkdtemp(prefix="described-"))
    atexit.register(shutil.rmtree, directory)
    (directory / "config.json").write_text(json.dumps(said))
    return str(directory)


@cache
def other_words() -> str:
    """The directory of gimbal-tiny with two tokens exchanged."""
    directory = Path(tempfile.mkdtemp(prefix="words-"))
    atexit.register(shutil.rmtree, directory)
    shutil.copytree(CausalLM().path, directory, dirs_exist_ok=True)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    one, other = sorted(vocabulary)[10:12]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(directory)


def rows(count: int = 40) -> Rows:
    return Rows(
        rows=[
            {"prompt": f"State the final answer to the following arithmetic problem: {n} + {n + 3} =\n"}
            for n in range(count)
        ]
    )


def small_run(**changes: object) -> Run:
    run = Run(
        policy=Shallow(),
        engine=Native(slots=12, precision="float32"),
        tasks=rows(),
        sampling=Sampling(max_length=10),
        rewards=(Digits(),),
        prompts_per_step=2,
        num_generations=4,
        max_staleness=0,
        advantage=GroupNormalized(),
        objective=ClippedRatio(),
        optimization=Optimization(learning_rate=1e-3),
        steps=5,
        threads=1,
        checkpoint_every=2,
        record_every=0,
    )
    return replace(run, **changes)


def terminal_run(**changes: object) -> Run:
    """The recipe terminal, whose episodes act in a sandbox, on few of them."""
    run = terminal()
    small = {
        "engine": Native(slots=6, precision="float32"),
        "prompts_per_step": 2,
        "num_generations": 4,
        "held_out": None,
        "threads": 1,
        "checkpoint_every": 1,
    }
    return replace(run, **small | changes)


def agent_run(**changes: object) -> Run:
    """small_run through a program of its own that asks twice over HTTP."""
    program = f"{Path(__file__).parents[1] / 'serve' / 'agents.py'}:solve"
    agent = Agent(program=program, overlap=4, at_once=5)
    small = {"workflow": agent, "rewards": (), "sampling": Sampling(max_length=40), "checkpoint_every": 1}
    return small_run(**small | changes)


class UnequalBudget(AbstractBudget):
    def __init__(self, rollouts: int, max_length: int) -> None:
        self.rollouts, self.most = rollouts, max_length

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        return [Plan(rollouts=self.rollouts, max_length=self.most - int(task.id[-1]) % 3) for task in tasks]


@dataclass(frozen=True, kw_only=True)
class Unequal(AbstractBudgetSpec):
    """Paths of up to two steps less, by their tasks: of equal length they all end together, and none is ever half drawn."""

    def start(self, rollouts: int, max_length: int) -> UnequalBudget:
        return UnequalBudget(rollouts, max_length)


def distilled_run(**changes: object) -> UpdateRun:
    """dmd2 on paths of two steps, whose fake moves twice for one move of the policy; it needs diffusers."""
    run = dmd2()
    update = replace(run.update, fake_updates=2)
    small = {"policy": replace(run.policy, batch=8), "engine": replace(run.engine, slots=5), "update": update}
    sizes = {"prompts_per_step": 2, "num_generations": 4, "held_out": None, "checkpoint_every": 1}
    return replace(run, **small | sizes | changes)


def masked_run(**changes: object) -> Run:
    """masked_grpo on texts of a few cells in blocks of four, of which those of a pass are drawn."""
    run = masked_grpo()
    small = {
        "policy": replace(run.policy, batch=8),
        "engine": replace(run.engine, slots=5),
        "sampling": replace(run.sampling, max_length=8, block=4, threshold=0.7, spread=0.2),
        "rewards": (TokensPerPass(),),
        "prompts_per_step": 2,
        "num_generations": 4,
        "budget": Unequal(),
        "held_out": None,
        "checkpoint_every": 1,
    }
    return replace(run, **small | changes)


def denoising_run(**changes: object) -> Run:
    """flow_grpo on paths of three to five steps, of which all but the last are drawn; it needs diffusers."""
    run = flow_grpo()
    small = {
        "policy": replace(run.policy, batch=8),
        "engine": replace(run.engine, slots=5),
        "sampling": replace(run.sampling, max_length=5),
        "prompts_per_step": 2,
        "num_generations": 4,
        "budget": Unequal(),
        "ahead": "ready",
        "held_out": None,
        "checkpoint_every": 1,
    }
    return replace(run, **small | changes)
