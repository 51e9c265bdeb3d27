"""A recipe of stubs, in a user's own file: real methods, an engine and tasks that cannot be started."""

from dataclasses import dataclass, field
from typing import Any, Literal

from gimbal.advantages import GroupNormalized
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.engines.base import AbstractEngineSpec
from gimbal.environments.base import AbstractTasks
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run


@dataclass(frozen=True, kw_only=True)
class ToyEngine(AbstractEngineSpec):
    """It samples nothing."""

    precision: Literal["float32", "int8"] = "int8"

    def start(self, policy):
        raise ValueError("the toy engine does not start")


@dataclass(frozen=True, kw_only=True)
class ToyTasks(AbstractTasks):
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)
    exclude: "ToyTasks | None" = None

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int):
        return Task(id=str(index), prompt="1 + 1 =")


def reward(prompts, completions):
    return [float(len(completion)) for completion in completions]


def toy() -> Run:
    """Stubs around real methods."""
    return Run(
        policy=CausalLM(),
        engine=ToyEngine(),
        tasks=ToyTasks(parameters={"max_terms": 3}),
        held_out=HeldOut(tasks=ToyTasks()),
        sampling=Sampling(max_length=32, stop=("\n",)),
        rewards=(ExactAnswer(),),
        filters=(ZeroVariance(),),
        prompts_per_step=4,
        num_generations=8,
        max_staleness=2,
        advantage=GroupNormalized(),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        correction=TruncatedWeight(),
        optimization=Optimization(minibatches=2),
        steps=10,
    )
