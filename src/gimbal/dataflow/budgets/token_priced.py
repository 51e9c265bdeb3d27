"""A token budget per step, enforced by a price on rollouts, and spent where outcomes vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.dataflow.base import AbstractBudgetSpec, Plan, Progress
from gimbal.dataflow.budgets.sizes import AbstractSuccessBudget
from gimbal.dataflow.success import AbstractSuccessTracking
from gimbal.ops.allocation import shared
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class TokenPriced(AbstractSuccessTracking, AbstractBudgetSpec):
    """Allocates rollouts before sampling: in proportion to u^power, as many as a budget of ``tokens`` per step allows (the first of
    DUET's two controls, arXiv:2605.08441).

    u = p (1 - p), with p the mean of a Beta model of the task, a <- prior + fresh (a - prior) + sum r on a visit with outcomes r in
    [0, 1], and a <- prior + fade (a - prior) in each step, b alike. Tasks that are given out together share
    num_generations x tasks / (1 + price) rollouts, ``least`` to ``most`` each. After each step
    price <- max(0, price + gain (tokens generated in it / ``tokens`` - 1)).

    - ``power`` = 0 and ``tokens`` above what is spent: as Fixed.
    - ``tokens`` = 0: no price, only the shares.

    All generated tokens count as spent, including those of cancelled rollouts. Tasks must repeat for the shares to be meaningful:
    tasks.size=256.

    Published: a budget of tokens, shares by a surrogate known before the rollouts, and a second control, that aborts rollouts behind a
    marker and weighs the others (workflows.Aborting).

    Confidence: abstract only; ours: the surrogate, ``power``, the law of the price.
    """

    tokens: int = 0
    gain: float = 0.5
    power: float = 1.0
    least: int = 2
    most: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < 0 or min(self.gain, self.power) < 0 or not 2 <= self.least <= self.most:
            raise ValueError(
                f"TokenPriced has tokens {self.tokens}, gain {self.gain} and power {self.power} (0 or above) and gives {self.least} to "
                f"{self.most} rollouts: let 2 <= least <= most"
            )

    def start(self, rollouts: int, max_length: int) -> TokenPricedBudget:
        return TokenPricedBudget(self, rollouts, max_length)


class TokenPricedBudget(AbstractSuccessBudget):
    """The live half of ``TokenPriced``."""

    def __init__(self, spec: TokenPriced, rollouts: int, max_length: int) -> None:
        super().__init__(type(spec).__name__, model=spec.model(), reward=spec.name)
        self.spec, self.mean, self.max_length = spec, rollouts, max_length
        self.price = 0.0
        self.drawn = 0  # decisions, until the last step

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        chance_P = self.model.chance([task.id for task in tasks])
        total = round(self.mean * len(tasks) / (1 + self.price))
        weight_P = (chance_P * (1 - chance_P)) ** self.spec.power
        count_P = shared(weight_P, total, self.spec.least, self.spec.most)
        return [Plan(rollouts=int(count), max_length=self.max_length) for count in count_P]

    def step(self, progress: Progress) -> None:
        super().step(progress)
        if self.spec.tokens and progress.version:
            over = (progress.drawn - self.drawn) / self.spec.tokens - 1
            self.price = max(0.0, self.price + self.spec.gain * over)
        self.drawn = progress.drawn

    def metrics(self) -> dict[str, float]:
        """``price``, beside the sizes of groups."""
        return {**super().metrics(), f"{self.name}/price": self.price}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "price": self.price, "drawn": self.drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.price, self.drawn = state["price"], state["drawn"]
