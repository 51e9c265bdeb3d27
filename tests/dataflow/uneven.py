"""An engine whose rollouts have lengths and nothing else, under the real pipeline: schedules by the thousand, none of them costly."""

from dataclasses import dataclass

import made
import torch

from gimbal.dataflow.base import AbstractCurriculum, AbstractFilter
from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.packing import pack
from gimbal.engines.base import AbstractEngine, Finished
from gimbal.ops import philox
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Drop, Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.base import AtOnce
from gimbal.runtime.pipeline import Parts, Pipeline


class Uneven(AbstractEngine):
    """Lengths 1 to 8, and one rollout in six 40 long; a step draws a decision of each live one that the dice do not hold up."""

    version, tolerance = -1, 0.0

    def __init__(self, seed, slots, held_up):
        self.draws, self.slots, self.held_up = philox(seed, "engine"), slots, held_up
        self.live = []  # request, its length, versions so far
        self.queue = []
        self.drawn = 0  # decisions

    @property
    def in_flight(self):
        return len(self.live) + len(self.queue)

    def submit(self, request):
        self.queue.append((request, length(request), []))

    def step(self):
        while self.queue and len(self.live) < self.slots:
            self.live.append(self.queue.pop(0))
        for _, _, versions in self.live:
            if self.draws.random() >= self.held_up:
                versions.append(self.version)
                self.drawn += 1
        done = [item for item in self.live if len(item[2]) == item[1]]
        self.live = [item for item in self.live if len(item[2]) < item[1]]
        return [Finished.of(request.key, rollout(request, versions)) for request, _, versions in done]

    def load(self, version, state):
        self.version = version

    def cancel(self, key):
        before = self.in_flight
        begun = [(request, versions) for request, _, versions in self.live if request.key == key and versions]
        self.live = [item for item in self.live if item[0].key != key]
        self.queue = [item for item in self.queue if item[0].key != key]
        assert self.in_flight == before - 1, f"{key} is not in flight"
        return rollout(*begun[0]) if begun else None

    def score(self, rollout): ...

    def state_dict(self):
        return {}

    def load_state_dict(self, state): ...


def length(request):
    draw = philox(request.seed, request.task.id, request.sample)
    return 40 if draw.random() < 1 / 6 else int(draw.integers(1, 9))


def rollout(request, versions):
    count = len(versions)
    return made.rollout(
        task=request.task,
        sample=request.sample,
        decisions=Tokens.row([0], [0] * count),
        version_S=torch.tensor(versions),
        sampling=request.sampling,
    )


@dataclass(frozen=True, kw_only=True)
class Short(AbstractReward):
    """Paid for short answers: the long ones are the hard tasks' failures."""

    name: str = "short"

    def __call__(self, group: Group) -> list[float | None]:
        return [float(rollout.length <= 8) for rollout in group.rollouts]


@dataclass(frozen=True, kw_only=True)
class Sometimes(AbstractFilter):
    """Drops a share of the groups, whatever they hold."""

    share: float

    def __call__(self, group: Group) -> Group | Drop:
        return Drop("dice") if philox(group.index, "dice").random() < self.share else group


class Counting(AbstractCurriculum):
    def __init__(self):
        self.given = 0

    def next(self):
        self.given += 1
        return Task(id=str(self.given))

    def state_dict(self):
        return {}

    def load_state_dict(self, state): ...


class Schedule:
    """A learner of ``steps`` steps on what a rule gives it: ``batches`` of group indices, ``ages`` of the decisions trained on."""

    def __init__(
        self,
        rule,
        *,
        steps,
        seed,
        slots=1000,
        held_up=0.0,
        share=0.0,
        oversampling=1.0,
        ahead="ready",
        size=2,
        budget=None,
        surplus="wait",
    ):
        self.engine, self.rule = Uneven(seed, slots, held_up), rule
        reward = [Short()]
        self.pipeline = Pipeline(
            Parts(
                engine=self.engine,
                scorer=AtOnce(reward),
                curriculum=Counting(),
                budget=budget or FixedBudget(size, 64),
                rewards=reward,
                filters=(Sometimes(share=share),),
                sampling=Sampling(max_length=64),
            ),
            rule,
            ahead=ahead,
            seed=seed,
            max_empty_batches=10**6,
            surplus=surplus,
        )
        self.pipeline.oversampling = oversampling
        self.batches, self.ages = [], []
        for version in range(steps):
            self.engine.load(version, {})
            groups, _ = self.pipeline.next_batch(version)
            batch = rule.trained(pack(groups), version)
            self.batches.append([group.index for group in groups])
            self.ages.append((version - batch.version_NS)[batch.mask_NS])

    @property
    def oldest(self):
        return max(int(age_K.max()) for age_K in self.ages)

    @property
    def trained(self):
        return [index for batch in self.batches for index in batch]
