"""A run: all parts of an experiment with their settings. Recipes return one; it is saved with the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from gimbal.dataflow.base import AbstractBudgetSpec, AbstractCurriculumSpec, AbstractFilter
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.replay.base import AbstractStoreSpec
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.staleness import AbstractStalenessSpec, Pace
from gimbal.engines.base import AbstractEngineSpec
from gimbal.environments.base import AbstractTasks
from gimbal.environments.forms import short as short_tasks
from gimbal.learning.updates.base import AbstractUpdate
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.learning.weight_sync.base import AbstractWeightSyncSpec
from gimbal.learning.weight_sync.memory import Direct
from gimbal.policies.base import AbstractPolicySpec
from gimbal.policies.token import Sampling
from gimbal.records import AbstractSampling
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import decided
from gimbal.runtime.base import AbstractRuntimeSpec, Local
from gimbal.runtime.devices import Devices
from gimbal.runtime.faults import Faults
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

MOST_THREADS = 1024
KS = (1, 2, 4, 8, 16, 32)  # k of pass@k, as far as there are samples
LEAST = {  # lower bounds of a run's numbers
    **dict.fromkeys(
        ("prompts_per_step", "num_generations", "max_empty_batches", "checkpoint_every", "keep_checkpoints"), 1
    ),
    **dict.fromkeys(("steps", "threads", "record_every", "record_mb", "keep_every"), 0),
}


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The evaluation: tasks with their own seed, sampled as in training (pass@1, pass@k) and greedily, before and after the run.

    ``every`` > 0 also evaluates every that many steps. ``save_best`` names the metric by which the best model is kept as RUN/best,
    next to the last one in RUN/model: score (a return, where environments give it), greedy_success (where they say so), pass@1, ..., or
    a figure of a reward as the evaluation names it (data/coverage). The initial weights compete but are not saved again.
    ``engine``, ``workflow``, ``sampling`` and ``rewards`` default to the run's: other ``sampling`` evaluates what training does not
    draw, such as more denoising steps or finer pictures; the greedy evaluation takes it at temperature 0. With
    ``workflow=Demonstrated()`` the tasks hold written answers, and the evaluation is the run's loss on them (``eval/loss``, and
    ``eval/pair/accuracy`` for DPO).
    """

    tasks: AbstractTasks
    samples: int = 4
    every: int = 0
    save_best: str | None = None
    engine: AbstractEngineSpec | None = None
    workflow: AbstractWorkflow | None = None
    sampling: AbstractSampling | None = None
    rewards: tuple[AbstractReward, ...] | None = None

    def __post_init__(self) -> None:
        if self.samples < 1 or self.every < 0:
            raise ValueError(
                f"held_out.samples must be at least 1 and held_out.every at least 0; got {self.samples} and {self.every}"
            )
        figures = ("score", "greedy_score", "success", "greedy_success", "greedy", "loss")
        figures += tuple(f"pass@{k}" for k in KS if k <= self.samples)
        best = self.save_best
        if best is not None and best not in figures and "/" not in best:  # one with a bar is named by a reward
            raise ValueError(
                f"held_out.save_best is {best}; it must be none or one of {', '.join(figures)}, or a figure of a reward, "
                "as data/coverage is one of DigitDistance"
            )
        if best is not None and not self.every:
            raise ValueError(
                f"held_out.save_best={best} needs evaluations during training, but held_out.every is 0: set held_out.every=10"
            )


@dataclass(frozen=True, kw_only=True)
class AbstractRun(ABC):
    """An experiment without its learning parts. A learner step trains on ``prompts_per_step`` groups of ``num_generations`` rollouts.

    ``max_staleness`` = k: no decision older than k learner versions is trained on when its group is first taken; 0 means synchronous.
    ``staleness`` is the rule that enforces it: Pace, Wait, Withhold, DropStale, MaskStale; or Reweight, which has no bound. A
    ``store`` that trains on groups again has a bound of its own.
    ``ahead``: "ready" lets the learner step as soon as a batch is ready; "full" first generates as far ahead as k allows, so that
    all data has age k once the pipeline is full (as with a learner much slower than its samplers).
    """

    # Who acts, and where.
    policy: AbstractPolicySpec
    engine: AbstractEngineSpec
    workflow: AbstractWorkflow = SingleTurn()  # drives the engine through a rollout
    tasks: AbstractTasks
    curriculum: AbstractCurriculumSpec = Epochs()
    budget: AbstractBudgetSpec = Fixed()  # rollouts per task, and their length: by default num_generations, max_length
    held_out: HeldOut | None = None
    sampling: AbstractSampling = Sampling()  # must fit the policy: Sampling for tokens, StepSampling for control

    # What the run may learn from.
    rewards: tuple[AbstractReward, ...] = ()
    filters: tuple[AbstractFilter, ...] = ()
    prompts_per_step: int = 16  # groups of rollouts in a learner step
    num_generations: int = 8  # rollouts in a group
    max_staleness: int = 1  # learner versions that a decision may be old; 0 is synchronous
    staleness: AbstractStalenessSpec = Pace()  # the rule that keeps max_staleness
    ahead: Literal["ready", "full"] = "ready"  # learn at once, or when samplers are max_staleness ahead
    oversampling: float = 1.0  # groups dispatched per group wanted, if filters drop some; surplus groups are dropped
    surplus: Literal["wait", "recycle"] = "wait"  # for unfinished groups; or their tasks restart later
    max_empty_batches: int = 10  # the run stops with advice after this many batches of dropped groups in a row

    store: AbstractStoreSpec = Once()  # which rollouts are kept and trained on again
    sync: AbstractWeightSyncSpec = Direct()  # how weights travel from the learner to the engine

    # The run itself.
    runtime: AbstractRuntimeSpec = Local()
    devices: Devices | None = None  # GPUs for learner and samplers; None: the first GPU, or the CPU
    steps: int = 50
    seed: int = 0
    threads: int = 0  # torch threads; 0 chooses by the number of cores when the run is created, and saves the choice
    checkpoint_every: int = 25  # steps
    keep_checkpoints: int = 2  # the newest so many stay
    keep_every: int = 0  # steps between checkpoints that stay, besides the newest keep_checkpoints; 0 keeps no others
    record_every: int = 10  # steps between samples of rollouts written to disk; 0 writes none
    record_mb: int = 50  # maximum megabytes of rollouts on disk, spread evenly over the steps
    faults: Faults | None = None  # faults to inject on purpose

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if vars(self)[name] < least:
                raise ValueError(f"{name} is {vars(self)[name]}; it must be {least} or above")
        if self.threads > MOST_THREADS:
            raise ValueError(f"threads is {self.threads}; it must be {MOST_THREADS} or below")
        if self.max_staleness < 0:
            raise ValueError(
                f"max_staleness is {self.max_staleness}; it must be a number of learner versions, where 0 is synchronous"
            )
        if not 0 <= (self.staleness.admission or 0) <= self.max_staleness:
            raise ValueError(
                f"staleness.admission is {self.staleness.admission}; samplers may be 0 to max_staleness versions ahead: set it to "
                f"{self.max_staleness} or below, or to none"
            )
        if self.oversampling < 1:
            raise ValueError(f"oversampling is {self.oversampling}; it must be 1 (no extra groups) or above")

    @property
    def sampler(self) -> Driven:
        """The engine that samples its rollouts, and the workflow that drives it."""
        return self._driven(self.engine, self.workflow, self.rewards)

    @property
    def evaluator(self) -> Driven:
        """The same for its evaluation."""
        if (own := self.held_out) is None:
            return self.sampler
        rewards = self.rewards if own.rewards is None else own.rewards
        return self._driven(own.engine or self.engine, own.workflow or self.workflow, rewards)

    def _driven(
        self, engine: AbstractEngineSpec, workflow: AbstractWorkflow, rewards: tuple[AbstractReward, ...]
    ) -> Driven:
        learns = self.learns
        return Driven(engine=engine, workflow=workflow, owners=learns.owners, kinds=learns.kinds, judged=bool(rewards))

    @property
    def evaluated_by(self) -> AbstractSampling:
        """How its evaluation samples."""
        return self.sampling if self.held_out is None else self.held_out.sampling or self.sampling

    @property
    def judged(self) -> bool:
        """Whether a rollout solves its task or does not: the first reward decides; without rewards, a return of 1 solves a text."""
        return decided(self.rewards) if self.rewards else self.policy.family.judged

    @property
    def paid(self) -> bool:
        """Whether something gives rollouts a score: a reward, or the environment, which pays for no picture."""
        return bool(self.rewards) or self.policy.family.pays

    @property
    def sized(self) -> bool:
        """Whether a rollout has a length of its own, which says something of it: pictures take as many steps as they are given."""
        return self.policy.family.judged or (bool(self.rewards) and self.policy.family.pays)

    @property
    @abstractmethod
    def learns(self) -> AbstractUpdate:
        """The learner and its losses."""


@dataclass(frozen=True, kw_only=True)
class Run(AbstractRun, AbstractPolicyGradient):
    """An experiment that learns by a policy gradient, whose parts are fields of the run: ``objective``, ``advantage``,
    ``regularisers``, ...
    """

    @property
    def learns(self) -> AbstractPolicyGradient:
        return self


@dataclass(frozen=True, kw_only=True)
class UpdateRun(AbstractRun):
    """An experiment that learns by any other update: ``update=SoftActorCritic(...)``.

    It has no policy-gradient fields, so that a key that nothing would read is refused.
    """

    update: AbstractUpdate

    @property
    def learns(self) -> AbstractUpdate:
        return self.update.of_run(self.rewards)


def short(value: Any) -> Any:
    """Turn bare tasks (or their file name, or a list of dicts) into an evaluation on them; anything else passes unchanged."""
    tasks = short_tasks(value)
    return HeldOut(tasks=tasks) if isinstance(tasks, AbstractTasks) else value
