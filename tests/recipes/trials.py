"""Small runs of recipes, kept so that a whole family is compared with one run of its parent."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from starts import apart
from torch import Tensor

from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

ROLLOUTS = 16  # of a step, as 2 prompts of 8
KEPT = 12  # trials at a time; each holds a model, its optimiser and a cache
APART = 1e-4  # of the way the weights went; another order of summation moves them by a hundred-thousandth of it
MAY_BE_NAN = {"kept_frac"}  # no group may have finished since the last step


def small(run: Run, prompts: int = 0) -> Run:
    """With fewer prompts a step, and as many slots less; all else is the recipe's own. 0 chooses how many."""
    prompts = prompts or max(2, ROLLOUTS // run.num_generations)
    if prompts >= run.prompts_per_step:
        return replace(run, threads=1)
    share = prompts / run.prompts_per_step
    changes: dict[str, Any] = {"engine": _with(run.engine, "slots", lambda slots: max(1, round(slots * share)))}
    changes["curriculum"] = _with(run.curriculum, "prompts", lambda _: prompts)  # Allocated shares out a batch
    changes["tasks"] = _with(run.tasks, "period", lambda period: round(period * share))  # Alternating counts batches
    if "size" in vars(run.tasks) and vars(run.tasks)["size"] < run.steps * run.prompts_per_step:  # seen several times
        changes["tasks"] = replace(changes["tasks"], size=round(vars(run.tasks)["size"] * share))
    return replace(run, prompts_per_step=prompts, threads=1, **changes)


def _with(part: Any, name: str, change: Callable[[Any], Any]) -> Any:
    """The part with this field changed wherever in it the field stands."""
    if not is_dataclass(part):
        return part
    changes = {item.name: _with(getattr(part, item.name), name, change) for item in fields(part) if item.init}
    if name in changes:
        changes[name] = change(changes[name])
    return replace(part, **changes)


def hastened(part: Any, sooner: Mapping[type, Mapping[str, Any]]) -> Any:
    """With these fields in the parts of these classes, so that what a schedule brings late comes within a few steps."""
    if isinstance(part, tuple):
        return tuple(hastened(item, sooner) for item in part)
    if isinstance(part, Mapping):
        return {key: hastened(item, sooner) for key, item in part.items()}
    if not sooner or not is_dataclass(part):
        return part
    changes = {item.name: hastened(getattr(part, item.name), sooner) for item in fields(part) if item.init}
    return replace(part, **changes | dict(sooner.get(type(part), {})))


@dataclass
class Trial:
    """A run and what it did so far: the weights and metrics after each step."""

    run: Run
    weights: list[Tensor] = field(default_factory=list)  # [0] is before the first step
    metrics: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.trainer = Trainer(apart(self.run))
        self.weights.append(self._weights())

    def to(self, steps: int) -> Trial:
        while len(self.metrics) < steps:
            metrics, _, batch = self.trainer.advance()
            unknown = {name for name, value in metrics.items() if not math.isfinite(value)}
            assert unknown <= MAY_BE_NAN, unknown
            most = self.run.store.most_age(self.run.max_staleness)
            assert most is None or metrics["staleness/max"] <= most
            assert batch.mask_NS.any()
            self.metrics.append(metrics)
            self.weights.append(self._weights())
        return self

    def _weights(self) -> Tensor:
        learner = self.trainer.learner
        models = (learner.policy, *learner.separate.values())
        return torch.cat([x.detach().flatten().float() for model in models for x in model.weights().values()])

    def parted(self, other: Trial, steps: int, apart: float = APART) -> int | None:
        """The first step whose update took the weights of the two apart, by more than rounding does. The other goes no further."""
        for step in range(steps):
            mine, its = self.weights[step + 1], other.to(step + 1).weights[step + 1]
            if mine.shape != its.shape:
                return step
            way = max(float((mine - self.weights[0]).norm()), float((its - other.weights[0]).norm()))
            if float((mine - its).norm()) > apart * way:
                return step
        return None


class Trials:
    """The newest trials, by their runs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Trial] = OrderedDict()

    def __call__(self, run: Run, steps: int) -> Trial:
        key = repr(run)
        if key not in self._kept:
            self._kept[key] = Trial(run)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)[1].trainer.close()
        return self._kept[key].to(steps)

    def close(self) -> None:
        for trial in self._kept.values():
            trial.trainer.close()
