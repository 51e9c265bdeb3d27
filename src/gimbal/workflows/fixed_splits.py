"""Groups of denoising paths that grow as trees: paths share their first steps and split at fixed ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.engines.base import DRAW, FORK
from gimbal.policies.paths import ODE, PathSampling
from gimbal.records import Drop, Episode, Rollout
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.over_rows import evaluated_otherwise


@dataclass(frozen=True, kw_only=True)
class FixedSplits(AbstractWorkflow):
    """Every path of a group splits in ``factor`` before each of the steps ``splits``, so that its first steps are evaluated once for
    all of its branches (BranchGRPO, arXiv:2509.06040).

    A group of G has ceil(G / factor^m) roots, for m splits. The sample at place p belongs to root p mod roots; the m digits of
    p // roots in base ``factor`` say which branch it takes at each split. Where all are 0 it is the root itself. Otherwise it splits
    off the sample with the last digit above 0 set to 0, at that digit's split, and has its own noise from there. Steps taken over do
    not count in a branch: each step counts, and trains, in the row that drew it. ``rows/shared_frac`` is their share. A path too short
    for a split (a budget may set its steps) is not split there.

    - ``splits`` empty, or ``factor`` 1: SingleTurn, bit for bit.
    - one split, ``factor`` the group's size: one path, from which all others split there.

    Samples of a group are correlated, each by itself is a sample of the policy. ``NodeNormalized`` credits steps by all that share
    them; with an advantage of whole rollouts a shared step is credited by the first of its samples alone.

    Published: factor 2, splits 0, 3, 6 and 9 of 20 steps, one start for a group (``sampling.same_start``; so the split at 0 is that
    into roots), 16 samples. Ours: no pruning of branches, and no mixed noise at splits, so that recorded log-probabilities are exact.

    Confidence: verified; the published noise at splits unverified.
    """

    splits: tuple[int, ...] = (2, 3, 5)
    factor: int = 2

    def __post_init__(self) -> None:
        if self.factor < 1 or any(at < 1 for at in self.splits) or list(self.splits) != sorted(set(self.splits)):
            raise ValueError(
                f"FixedSplits has splits {self.splits} and factor {self.factor}; splits are rising numbers of steps from 1 (roots "
                "split at 0), and factor is at least 1"
            )

    @property
    def whole(self) -> bool:
        return True

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, FORK})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("FixedSplits draws samples that share steps", whole)
        sampling = whole.run.sampling
        if not isinstance(sampling, PathSampling):
            yield Refusal(
                "FixedSplits splits denoising paths, which all have the same steps: for text use workflow='Branching()', which splits "
                "rows where the policy was least certain"
            )
            return
        if sampling.sampler == ODE or whole.doing(FORWARD):
            yield Refusal(
                "FixedSplits has paths split by the noise of their steps, which the ODE and updates of finished samples do without: "
                "workflow='SingleTurn()', or a policy gradient on sampling.sampler='flow_sde' (of diffusion: ddim)"
            )
        elif sampling.window:
            yield Refusal(
                f"FixedSplits needs noise from each split on, and sampling.window={sampling.window} puts it into a random window: "
                "sampling.window=0"
            )
        elif wrong := [at for at in self.splits if at not in sampling.drawn(sampling.max_length)]:
            drawn = sampling.drawn(sampling.max_length)
            yield Refusal(
                f"FixedSplits splits before step {wrong[0]}, which is not sampled, so that both sides would be one path: of "
                f"sampling.max_length={sampling.max_length} steps those from {drawn.start} to {drawn.stop - 1} are (the first is 0)"
            )
        if whole.run.num_generations == 1 or self.factor ** len(self.splits) == 1:
            yield Refusal(
                f"FixedSplits splits nothing in a group of {whole.run.num_generations} with splits {self.splits} and factor "
                f"{self.factor}: workflow='SingleTurn()', or more of each"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        sampling = attempt.sampling
        assert isinstance(sampling, PathSampling), type(sampling)
        drawn = sampling.drawn(sampling.max_length)
        splits = tuple(at for at in self.splits if at in drawn)
        count = len(attempt.samples)
        roots = -(-count // self.factor ** len(splits))
        branches: dict[int, list[tuple[int, int]]] = {place: [] for place in range(count)}  # place, split
        for place in range(roots, count):
            code, root = divmod(place, roots)
            after = _zeros(code, self.factor)
            parent = code - code // self.factor**after % self.factor * self.factor**after
            branches[root + parent * roots].append((place, splits[-1 - after]))
        outcomes: dict[int, Episode | Drop] = {}

        def tree(place: int, fork: tuple[Rollout, int] | None) -> Steps:
            """The path at this place, and all that split off it as soon as it has ended."""
            row = yield attempt.of(attempt.samples[place], fork).begin()
            outcomes[place] = Episode.of(row)
            yield [tree(other, (row, at)) for other, at in branches[place]]

        yield [tree(place, None) for place in range(roots)]
        return [outcomes[place] for place in range(count)]


def _zeros(code: int, factor: int) -> int:
    """How many digits behind the last one above 0."""
    found = 0
    while code % factor == 0:
        code, found = code // factor, found + 1
    return found
