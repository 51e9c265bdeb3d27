"""Groups that fork where the policy is uncertain, and give up rollouts whose confidence falls."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import CONTINUE, DRAW, FORK, RECORD
from gimbal.records import Drop, Episode, Rollout
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Attempt, Draw, Fork, Steps
from gimbal.workflows.over_rows import evaluated_otherwise

Window = tuple[float, float]  # mean entropy and confidence of some successive tokens


@dataclass(frozen=True, kw_only=True)
class GatedTree(AbstractWorkflow):
    """Forks rollouts by entropy and confidence together, and prunes those whose confidence falls (the tree of ECHO, arXiv:2602.02150).

    A group begins with ``roots`` rows. After every ``window`` tokens, with H the mean entropy and C the geometric mean of the
    probabilities of these tokens, a row continues as

        B = 1 + floor((most - 1) sigmoid((H - middle) / scale) (1 - C))

    rows, as far as the group has samples left. So a row that is always uncertain does not take them all if its tokens are likely ones.
    Before, a row is pruned if C was ever below ``low``, has fallen in the last ``falls`` windows, or H has risen in the last ``rises``;
    0 of either: never. ``least`` rows of a group are always kept. Pruned rows are counted as drops/rollouts/pruned. Samples that no
    fork has taken are sampled from the prompt.

    With rewards.Majority the rollouts that are left vote on the answer.

    Log-probabilities: each counted decision is sampled from the policy given its context, and counts once, in the row that sampled it.
    Which rows are left depends on what was drawn, and no weight corrects for that; branches share beginnings, so their votes are not
    independent. Evaluations must not use this workflow.

    - ``most`` = 1, ``low`` = 0, ``falls`` = ``rises`` = 0: independent samples.
    - ``roots`` the group's size: no forks.

    The engine must record entropies (Native(entropy=True)).

    Published: a width that grows with entropy and falls with confidence, and the three reasons to prune. Ours: the map, all numbers,
    windows that do not overlap. The paper's clip by confidence and its advantage by uncertainty are not here.

    Confidence: partial.
    """

    roots: int = 4
    window: int = 8
    most: int = 4
    middle: float = 0.3
    scale: float = 0.1
    low: float = 0.2
    falls: int = 3
    rises: int = 3
    least: int = 2

    def __post_init__(self) -> None:
        if min(self.roots, self.window, self.most, self.least) < 1 or min(self.falls, self.rises) < 0:
            raise ValueError(
                f"GatedTree has roots {self.roots}, window {self.window}, most {self.most} and least {self.least} (1 or more), falls "
                f"{self.falls} and rises {self.rises} (0 or more)"
            )
        if not 0 <= self.low <= 1 or not 0 < self.scale < math.inf or not math.isfinite(self.middle):
            raise ValueError(
                f"GatedTree has low {self.low} (a probability), scale {self.scale} (above 0) and middle {self.middle} (finite)"
            )

    @property
    def whole(self) -> bool:
        return True

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, FORK, RECORD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("GatedTree forks and drops rollouts by what it has drawn", whole)
        if self.roots > (size := whole.run.num_generations):
            yield Refusal(
                f"GatedTree begins with {self.roots} roots, and a group has {size} rollouts: workflow.roots={max(1, size // 2)} leaves "
                "the others for forks"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        free, outcomes = deque(attempt.samples), dict[int, Episode | Drop]()
        seen: dict[int, list[Window]] = {}  # of each row, those that it inherited too
        calls: list[Draw | Fork] = []
        while free and len(calls) < self.roots:
            sample = free.popleft()
            seen[sample] = []
            calls.append(attempt.of(sample).begin(most=self.window))
        while calls:
            rows: list[Rollout] = yield calls
            for row in rows:
                seen[row.sample].append(self.read(row))
            outcomes |= {row.sample: Episode.of(row) for row in rows if row.stop != PAUSED}
            going = [row for row in rows if row.stop == PAUSED]
            left = len(going) + sum(isinstance(one, Episode) for one in outcomes.values())
            kept: list[Rollout] = []
            for row in going:
                if left > self.least and self.dying(seen[row.sample]):
                    outcomes[row.sample], left = Drop("pruned", drawn=row.drawn), left - 1
                else:
                    kept.append(row)
            calls = [Draw(row=row, most=self.window) for row in kept]
            for row in kept:
                for sample in [free.popleft() for _ in range(min(self.width(*seen[row.sample][-1]) - 1, len(free)))]:
                    seen[sample] = list(seen[row.sample])
                    fork = Fork(row=row, at=row.length, sample=sample, sampling=attempt.sampling, most=self.window)
                    calls.append(fork)
        rest = yield [attempt.of(sample).begin() for sample in free]
        outcomes |= {row.sample: Episode.of(row) for row in rest}
        return [outcomes[sample] for sample in attempt.samples]

    def read(self, row: Rollout) -> Window:
        """Of its newest tokens."""
        assert row.entropy_S is not None, "the engine records entropies"
        newest = slice(max(0, row.length - self.window), None)
        return float(row.entropy_S[newest].mean()), math.exp(float(row.behavior_S[newest].mean()))

    def width(self, entropy: float, confidence: float) -> int:
        """As how many rows a row goes on."""
        open_ = 1 / (1 + math.exp(min(700.0, (self.middle - entropy) / self.scale)))
        return 1 + math.floor((self.most - 1) * open_ * (1 - confidence))

    def dying(self, windows: Sequence[Window]) -> bool:
        entropies, confidences = zip(*windows, strict=True)
        falling = _rising([-confidence for confidence in confidences], self.falls)
        return min(confidences) < self.low or falling or _rising(entropies, self.rises)


def _rising(values: Sequence[float], times: int) -> bool:
    """Whether each of the last ``times`` values is above the one before; 0 times: never."""
    last = values[-times - 1 :]
    return 0 < times < len(values) and all(one < other for one, other in pairwise(last))
