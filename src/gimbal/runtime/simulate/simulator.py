"""Simulate a run on other hardware or another schedule: the real ``Pipeline`` and ``Pace`` on a virtual clock.

    serial           all devices generate, then all train: the local runtime, and any colocated one
    sync             k = 0 on devices apart: each side waits for the other
    one-step-off     k = 1; all samplers finish what they have, then load together
    bounded-async    k; each sampler finishes the rollouts it has before it loads
    partial-rollout  k; samplers load at once, in the middle of rollouts, and continue

The learner only takes time. As in the runtime, groups are dispatched when it asks for a batch, not while it trains.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from gimbal.dataflow.base import AbstractBudgetSpec, AbstractFilter
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.staleness import Pace
from gimbal.environments.dataset import Rows
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Group
from gimbal.runtime.base import AtOnce
from gimbal.runtime.pipeline import Parts, Pipeline
from gimbal.runtime.simulate.timing import AbstractLengths, LogNormal, Speeds, Waits
from gimbal.runtime.simulate.virtual import Durations, Loading, VirtualEngine

Schedule = Literal["serial", "sync", "one-step-off", "bounded-async", "partial-rollout"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The pipeline to simulate. A sampler is one copy of the weights on any number of chips, a trainer one unit of training speed."""

    speeds: Speeds = Speeds()
    lengths: AbstractLengths = LogNormal()
    waits: Waits = Waits()
    prompt: int = 256  # tokens of a prompt
    samplers: int = 1
    trainers: int = 1  # under serial all devices do both in turn; 0 for the local runtime
    slots: int = 128  # rollouts at a time on one sampler
    prompts_per_step: int = 16
    num_generations: int = 8
    budget: AbstractBudgetSpec = Fixed()
    max_length: int = 10_000_000  # maximum decisions per rollout
    max_staleness: int = 1  # k of bounded-async and partial-rollout, and of serial
    admission: int | None = None  # versions that samplers may be ahead, as of staleness.admission; None: k
    ahead: Literal["ready", "full"] = "ready"  # "full" only applies to serial: elsewhere it would leave no overlap
    recompute: bool = False  # whether caches are recomputed when weights arrive in the middle of rollouts
    kept: float = 1.0  # share of groups that the filters let through
    oversampling: float = 1.0
    weight_bytes: float = 0.0  # bytes that one sampler loads per version
    warmup: int = 4  # first learner steps, which the figures leave out
    steps: int = 12  # learner steps to measure
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("samplers", "slots", "prompts_per_step", "num_generations", "max_length", "steps"):
            if vars(self)[name] < 1:
                raise ValueError(f"{name} is {vars(self)[name]}; it must be at least 1")
        for name in ("trainers", "max_staleness", "warmup", "prompt", "weight_bytes"):
            if vars(self)[name] < 0:
                raise ValueError(f"{name} is {vars(self)[name]}; it must be 0 or above")
        if not 0 < self.kept <= 1:
            raise ValueError(f"kept is {self.kept}; it must be a share above 0, at most 1")


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Figures of a schedule over ``steps`` learner steps after the warm-up. Shares are of device time; ages are decisions' own.

    ``sampler_idle``: neither drawing nor loading. ``occupancy``: rollouts being drawn, of all slots, over the whole time.
    """

    schedule: Schedule
    samplers: int
    trainers: int
    max_staleness: int
    seconds: float
    step_s: float
    rollouts_per_s: float  # trained on
    tokens_per_s: float  # decisions trained on
    sampler_idle: float
    sampler_loading: float
    occupancy: float
    trainer_idle: float
    age_mean: float
    age_max: int
    ages: Mapping[int, float]  # share of the decisions by age
    sync_bytes_per_s: float
    loads_per_step: float
    work: Mapping[str, int]  # decode steps, rows in them, tokens in caches, prompt tokens, starts: over all samplers
    trained: Mapping[str, int]  # groups, rollouts, decisions

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _Kept(AbstractFilter):
    """Lets a share of the groups through, by lot."""

    share: float
    seed: int

    def __call__(self, group: Group) -> Group | Drop:
        return group if random.Random(f"{self.seed}/{group.index}").random() < self.share else Drop("filtered")


@dataclass
class _Tally:
    """What has added up since the beginning."""

    groups: int = 0
    rollouts: int = 0
    decisions: int = 0
    training: float = 0.0  # seconds of the learner

    def __post_init__(self) -> None:
        self.ages = Counter[int]()


def simulate(plan: Setup, schedule: Schedule) -> Forecast:
    """The forecast of one schedule; the same for the same arguments."""
    serial = schedule == "serial"
    if not serial and plan.trainers == 0:
        raise ValueError(f"trainers is 0, but {schedule} needs at least one; only serial works without")
    k = {"sync": 0, "one-step-off": 1}.get(schedule, plan.max_staleness)
    engine = _engine(plan, schedule)
    pipeline = Pipeline(
        Parts(
            engine=engine,
            scorer=AtOnce(()),
            curriculum=Epochs(shuffle=False).start(Rows(rows=[{"prompt": "virtual"}]), plan.seed),
            budget=plan.budget.start(plan.num_generations, plan.max_length),
            rewards=(),
            filters=(_Kept(share=plan.kept, seed=plan.seed),) if plan.kept < 1 else (),
            sampling=Sampling(max_length=plan.max_length),
        ),
        Pace(admission=plan.admission).start(k, plan.prompts_per_step),
        ahead=plan.ahead if serial else "ready",
        seed=plan.seed,
        max_empty_batches=1000,
    )
    pipeline.oversampling = plan.oversampling
    trainers = len(engine.devices) if serial else plan.trainers
    tally, before = _Tally(), None
    engine.load(0, {})
    for version in range(plan.warmup + plan.steps):
        if version == plan.warmup:
            before = _snapshot(engine, tally)
        groups, _ = pipeline.next_batch(version)
        decisions = _count(groups, version, tally)
        seconds = plan.speeds.train(decisions, len(groups) * plan.prompt, trainers) + plan.speeds.sync_s
        tally.training += seconds
        if serial:
            engine.freeze(seconds)
        else:
            engine.pass_time(seconds)
        engine.load(version + 1, {})
    assert before is not None
    return _forecast(plan, schedule, k, len(engine.devices), trainers, before, _snapshot(engine, tally))


def _engine(plan: Setup, schedule: Schedule) -> VirtualEngine:
    loading: dict[Schedule, Loading] = {"one-step-off": "barrier", "bounded-async": "drain", "sync": "barrier"}
    serial = schedule == "serial"
    return VirtualEngine(
        replace(plan.speeds, load_s=0.0) if serial else plan.speeds,  # its learner's ``sync_s`` is all of it
        plan.lengths,
        plan.waits,
        devices=plan.samplers + plan.trainers if serial else plan.samplers,
        slots=plan.slots,
        generations=plan.num_generations,
        prompt=plan.prompt,
        loading=loading.get(schedule, "interrupt"),
        recompute=plan.recompute,
    )


def _count(groups: list[Group], version: int, tally: _Tally) -> int:
    """Add a batch to the tally; its decisions."""
    drawn = 0
    for group in groups:
        for rollout in group.rows:
            assert isinstance(rollout.decisions, Durations)
            for spans in rollout.decisions.rows:
                for drawn_by, count in spans:
                    tally.ages[version - drawn_by] += count
                    drawn += count
    tally.groups += len(groups)
    tally.rollouts += sum(len(group.episodes) for group in groups)
    tally.decisions += drawn
    return drawn


def _snapshot(engine: VirtualEngine, tally: _Tally) -> dict[str, Any]:
    return {
        "now": engine.now,
        "usage": Counter(engine.usage()),
        "work": Counter(engine.work),
        "ages": Counter(tally.ages),
        "tally": replace(tally),
    }


def _forecast(
    plan: Setup, schedule: Schedule, k: int, samplers: int, trainers: int, before: dict[str, Any], after: dict[str, Any]
) -> Forecast:
    seconds = max(after["now"] - before["now"], 1e-12)
    usage, work, ages = ({key: value - before[name][key] for key, value in after[name].items()} for name in _SUMS)
    first, last = before["tally"], after["tally"]
    decisions = last.decisions - first.decisions
    loads = float(samplers) if schedule == "serial" else work.get("loads", 0) / plan.steps
    return Forecast(
        schedule=schedule,
        samplers=samplers,
        trainers=trainers,
        max_staleness=k,
        seconds=seconds,
        step_s=seconds / plan.steps,
        rollouts_per_s=(last.rollouts - first.rollouts) / seconds,
        tokens_per_s=decisions / seconds,
        sampler_idle=max(0.0, 1 - (usage["busy"] + usage["loading"]) / (seconds * samplers)),
        sampler_loading=usage["loading"] / (seconds * samplers),
        occupancy=usage["rows"] / (seconds * samplers * plan.slots),
        trainer_idle=max(0.0, 1 - (last.training - first.training) / seconds),
        age_mean=sum(age * count for age, count in ages.items()) / decisions,
        age_max=max(age for age, count in ages.items() if count),
        ages={age: count / decisions for age, count in sorted(ages.items()) if count},
        sync_bytes_per_s=loads * plan.weight_bytes * plan.steps / seconds,
        loads_per_step=loads,
        work={name: int(value) for name, value in work.items()},
        trained={
            "groups": last.groups - first.groups,
            "rollouts": last.rollouts - first.rollouts,
            "decisions": decisions,
        },
    )


_SUMS = ("usage", "work", "ages")
