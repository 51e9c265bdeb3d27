"""Parts of a user's own of every kind, with a recipe and the reward that it holds."""

import threading
from dataclasses import dataclass
from typing import ClassVar

from gimbal import Run
from gimbal.advantages import GroupNormalized
from gimbal.engines.native import Native
from gimbal.environments.base import AbstractTasks
from gimbal.environments.tools import AbstractTool
from gimbal.objectives import ClippedRatio
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.rewards.function import Function
from gimbal.workflows.dialogue import Dialogue

LOCK = threading.Lock()  # what no pickle holds


def score(prompts, completions, **columns):
    with LOCK:
        return [float(len(set(text))) for text in completions]


@dataclass(frozen=True, kw_only=True)
class Shout(AbstractTool):
    triggers: ClassVar = ("1", "2", "3", "4", "5")
    said: str = "0"

    def __call__(self, task, text):
        return self.said


@dataclass(frozen=True, kw_only=True)
class Scaled(AbstractObjective):
    inner: ClippedRatio = ClippedRatio()
    consumes: ClassVar = ClippedRatio.consumes
    needs: ClassVar = ClippedRatio.needs

    def __call__(self, logprob_NS, batch):
        return self.inner(logprob_NS, batch)


@dataclass(frozen=True, kw_only=True)
class Sums(AbstractTasks):
    size: int = 8

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return Task(id=str(index), prompt=f"{index} + {index + 3} =\n")


def recipe():
    return Run(
        policy=CausalLM(),
        engine=Native(slots=8, precision="float32"),
        workflow=Dialogue(answers=1),
        tasks=Sums(),
        sampling=Sampling(max_length=5),
        rewards=(Function(function=score),),
        prompts_per_step=1,
        num_generations=3,
        advantage=GroupNormalized(),
        objective=ClippedRatio(),
        checkpoint_every=1,
        steps=1,
        threads=1,
    )
