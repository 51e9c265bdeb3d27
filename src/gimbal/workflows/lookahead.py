"""Groups that start as a tree of likely prefixes, without near duplicates; each continuation is sampled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from gimbal.composition import Composition, Verdict
from gimbal.engines.base import CONTINUE, DRAW, FORK, RIVALS
from gimbal.policies.token import Tokens
from gimbal.records import AbstractSampling, Episode, Rollout
from gimbal.rewards.similarity import edit_distance
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Attempt, Draw, Fork, Steps
from gimbal.workflows.over_rows import evaluated_otherwise


@dataclass(kw_only=True, eq=False)
class Branch:
    """A growing prefix, decoded greedily except for its forced token ``born``."""

    row: Rollout
    born: int
    parent: Branch | None

    @property
    def open(self) -> bool:
        return self.row.stop == PAUSED

    def ids(self, first: int, last: int) -> list[int]:
        tokens = self.row.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        start = int(tokens.prompt_N[0])
        return tokens.ids_NL[0, start + first : start + last].tolist()


@dataclass(frozen=True, kw_only=True)
class Lookahead(AbstractWorkflow):
    """Branches where two next tokens are nearly as likely, cuts branches too similar to their parent, and samples the rest (LATR,
    arXiv:2510.24302).

    A group of k begins as one greedy row. Where the most likely token has probability p and its rival q, with q > ``above`` and p - q <
    ``within``, the rival opens a branch, up to K = round(share k) at a time, oldest branches first. When a branch has d tokens of its
    own, for each d in ``ages``, it is cut if their edit distance to its parent's, divided by d, is below ``alike``. The tree is
    complete when it has K branches, none younger than the last of ``ages``, or after ``longest`` tokens, checked every max(ages)
    tokens. Each branch is then sampled to its end; missing ones are replaced by further samples of the first, and the k - K others are
    sampled from the prompt. ``shares`` are (learner step, share), each from its step on.

    Log-probabilities: greedy or forced tokens were not sampled. They keep the model's log-probability (0 if forced) and do not count,
    so no weight reads them. All counted decisions are sampled from the policy given their context, with its own log-probability:
    weights per decision, or over the counted part of a row, are right. Prefixes are chosen, not sampled, so pass rates describe such
    rows, and evaluations must not use this workflow.

    - a share of 0: independent samples.
    - ``above`` = 0.5 or more: one greedy prefix, with k sampled continuations.
    - ``alike`` = 0: nothing is cut.

    The engine must record rivals (Native(rivals=True)); vLLM does not. A branch that ended while the tree grew has no sampled
    decisions, and is sampled from the prompt instead; a rival never ends a text.

    Published: M = 2 rivals in all, ``above`` 0.25, ``within`` 0.15, ``alike`` 0.4, ``ages`` 20, 30, 50 and ``longest`` 512 on
    countdown, ``shares`` 1 falling to 0 by step 200, and prefixes that train as if they had been sampled.

    Confidence: verified; ours: prefixes do not train, each prompt decides separately when its tree is complete, and the stride of that.
    """

    shares: tuple[tuple[int, float], ...] = ((0, 1.0),)
    above: float = 0.25
    within: float = 0.15
    alike: float = 0.4
    ages: tuple[int, ...] = (20, 30, 50)
    longest: int = 512

    def __post_init__(self) -> None:
        if not self.ages or sorted(set(self.ages)) != list(self.ages) or self.ages[0] < 1:
            raise ValueError(f"Lookahead.ages are {self.ages}; they are rising counts of tokens, 1 or above")
        if min(self.above, self.within, self.alike) < 0 or self.longest < 2:
            raise ValueError(
                f"Lookahead has above {self.above}, within {self.within} and alike {self.alike}, which are 0 or above, and longest "
                f"{self.longest}, which is 2 tokens or more"
            )
        steps = [step for step, _ in self.shares]
        if steps[:1] != [0] or sorted(set(steps)) != steps or not all(0 <= share <= 1 for _, share in self.shares):
            raise ValueError(
                f"Lookahead.shares are {self.shares}; they are (step, share) with rising steps from 0, and shares from 0 to 1"
            )

    @property
    def whole(self) -> bool:
        return True

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, FORK, RIVALS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("Lookahead begins rollouts greedily and by force", whole)

    def begin(self) -> int:
        return 0

    def remember(self, memory: int, attempt: Attempt, rows: Sequence[Rollout]) -> int:
        """The newest version that has generated anything: the step that ``shares`` use."""
        return max([memory, *(int(row.version_S.max()) for row in rows)])

    def __call__(self, attempt: Attempt) -> Steps:
        share = next(share for step, share in reversed(self.shares) if step <= attempt.memory)
        width = min(len(attempt.samples), math.floor(share * len(attempt.samples) + 0.5))
        branches: dict[int, Branch] = {}
        drawn = (yield from self._grow(attempt, attempt.samples[:width], branches)) if width else 0
        ended = [sample for sample, branch in branches.items() if not branch.open]
        missing = [sample for sample in attempt.samples[:width] if sample not in branches]
        for sample in ended:
            del branches[sample]
        calls = [self._rest(attempt, sample, branches, sample in missing) for sample in attempt.samples]
        rows = yield calls
        drawn += sum(row.length - (call.row.length if call.row else 0) for call, row in zip(calls, rows, strict=True))
        return _episodes(rows, branches, drawn)

    def _rest(self, attempt: Attempt, sample: int, branches: dict[int, Branch], missing: bool) -> Draw | Fork:
        """The sampled part of a row. A row may only branch off one of a lower sample."""
        if sample in branches:
            return Draw(row=branches[sample].row, sampling=attempt.sampling)
        first = min(branches, default=sample)
        if missing and first < sample:
            row = branches[first].row
            return Fork(row=row, at=row.length, sample=sample, sampling=attempt.sampling)
        return Draw(task=attempt.task, sample=sample, sampling=attempt.sampling)

    def _grow(self, attempt: Attempt, samples: Sequence[int], branches: dict[int, Branch]) -> Steps:
        """Fills ``branches`` by their samples; returns how many tokens were drawn for it, those of cut ones too."""
        greedy = replace(attempt.sampling, temperature=0.0)
        most = min(self.longest, attempt.sampling.max_length - 1)
        reach, seen = min(self.ages[-1], most), 0
        if most < 2:
            return 0
        begun = yield Draw(task=attempt.task, sample=samples[0], sampling=greedy, most=max(2, reach))
        branches[samples[0]] = Branch(row=begun, born=0, parent=None)
        drawn = begun.length
        reach = max(2, reach)
        while True:
            for at in range(seen, reach - 1):
                drawn += yield from self._open(branches, samples, at, reach, greedy)
                self._cut(branches, at)
            seen = reach - 1
            young = any(branch.open and reach - branch.born < self.ages[-1] for branch in branches.values())
            going = {sample: branch for sample, branch in branches.items() if branch.open}
            if not going or reach == most or (len(branches) == len(samples) and not young):
                return drawn
            further = min(reach + self.ages[-1], most) - reach
            rows = yield [Draw(row=branch.row, sampling=greedy, most=further) for branch in going.values()]
            for branch, row in zip(going.values(), rows, strict=True):
                drawn += row.length - branch.row.length
                branch.row = row
            reach += further

    def _open(
        self, branches: dict[int, Branch], samples: Sequence[int], at: int, reach: int, greedy: AbstractSampling
    ) -> Steps:
        """Branches off those that have a rival at this place, as far as there is room; returns how many tokens were drawn."""
        parents = [branch for branch in branches.values() if self._splits(branch, at)]
        free = [sample for sample in samples if sample not in branches]
        if not parents or not free:
            return 0
        pairs = list(zip(parents, free, strict=False))
        calls = [
            Fork(row=p.row, at=at, forced=(int(p.row.rival_S[at]),), sample=s, sampling=greedy, most=reach - at - 1)
            for p, s in pairs
            if p.row.rival_S is not None
        ]
        rows = yield calls
        for (parent, sample), row in zip(pairs, rows, strict=True):
            branches[sample] = Branch(row=row, born=at, parent=parent)
        return sum(row.length - at - 1 for row in rows)  # the rival was not drawn

    def _splits(self, branch: Branch, at: int) -> bool:
        row = branch.row
        if not branch.born <= at < row.length or (branch.parent is not None and at == branch.born):
            return False
        assert row.rival_logprob_S is not None, "the engine records rivals"
        likeliest, rival = math.exp(float(row.behavior_S[at])), math.exp(float(row.rival_logprob_S[at]))
        return rival > self.above and likeliest - rival < self.within

    def _cut(self, branches: dict[int, Branch], at: int) -> None:
        """Remove branches too similar to their parent at this position."""
        for sample, branch in list(branches.items()):
            parent, own = branch.parent, at + 1 - branch.born
            if parent is None or own not in self.ages or parent not in branches.values():
                continue
            over = any(row.length == at + 1 and row.stop != PAUSED for row in (branch.row, parent.row))
            if over or min(branch.row.length, parent.row.length) <= at:
                continue
            mine, theirs = branch.ids(branch.born, at + 1), parent.ids(branch.born, at + 1)
            if edit_distance(mine, theirs) / own < self.alike:
                del branches[sample]


def _episodes(rows: Sequence[Rollout], branches: dict[int, Branch], drawn: int) -> list[Episode]:
    """With what was not sampled masked out, and each row as a branch of the earlier one that it has most in common with."""
    grown = {sample: branch.row.length for sample, branch in branches.items()}
    ends: list[tuple[int, Branch]] = []
    episodes: list[Episode] = []
    for row in rows:
        length = grown.get(row.sample)
        if length is not None:
            mine = Branch(row=row, born=0, parent=None)
            shared = [(_common(mine, other, min(length, upto)), other) for upto, other in ends]
            most, other = max(shared, key=lambda pair: pair[0], default=(0, mine))
            own_S = torch.arange(row.length) >= length
            row = replace(row, mask_S=row.mask_S & own_S, fork=(other.row.sample, most) if most else None)
            ends.append((length, mine))
        episodes.append(Episode.of(row))
    # Their rows hold forced tokens, which were not drawn, and lack what was cut: by their sum the group costs what it drew.
    spent = drawn - sum(episode.drawn for episode in episodes)
    return [replace(episodes[0], spent=spent), *episodes[1:]]


def _common(one: Branch, other: Branch, upto: int) -> int:
    pairs = zip(one.ids(0, upto), other.ids(0, upto), strict=True)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), upto)
