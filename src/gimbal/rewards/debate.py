"""Rewards decisions that hold up in a debate."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.records import Group, Task
from gimbal.rewards.asking import Asked, ask, fill
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import NoVerdict

JUDGED = """Judge a decision by the evidence below, and by nothing else. 0: the evidence speaks against it; 10: it fully supports it.

<task>
{prompt}
</task>
<evidence>
{evidence}
</evidence>
<decision>
{decision}
</decision>

End with a line of the form
Score: NUMBER"""
ARGUED = """You defend a decision against another one. A judge will see only the evidence that is revealed.

<task>
{prompt}
</task>
<yours>
{decision}
</yours>
<theirs>
{other}
</theirs>
<revealed>
{evidence}
</revealed>
<hidden>
{hidden}
</hidden>

Which piece of hidden evidence is to be revealed next? End with its number."""


@dataclass(kw_only=True)
class _Game:
    """Evidence revealed so far, by index; ``lost`` is why there is no outcome."""

    decision: str
    revealed: set[int] = field(default_factory=set)
    lost: NoVerdict | None = None


@dataclass(frozen=True, kw_only=True)
class Debated(AbstractReward):
    """1 if a judge who saw only what a debate revealed prefers the rollout to a baseline's decision, else 0 (Reward Design for
    Justifiable Sequential Decision-Making, arXiv:2402.15826).

    The task's column ``evidence`` is a list of D pieces, ``baseline`` the decision of a policy trained without this reward. An advocate
    of each, the rollout's first, in turn reveals a piece that is still hidden, ``reveals`` in all. The rollout wins if J(revealed,
    rollout) > J(revealed, baseline), J being ``judge``, whose template reads {evidence} and {decision}. ``advocate`` is asked for each
    move and answers with a number; without one the advocates are greedy: each reveals the piece that moves J's margin most in its
    favour, at 2 questions per hidden piece. ``advocates`` "own": the rollout's advocate makes all moves. For (1 - lam) r + lam m
    1[won], give the other reward weight 1 - lam and this one lam m.

    - ``weight`` = 0: the other rewards.
    - ``reveals`` = D or more: a judge who sees everything, and no debate.
    - ``advocates`` "own": one side picks all evidence, the published control.
    - a judge that sums over pieces: greedy play is optimal.

    Not applicable to tasks without evidence or baseline. Published: 6 of 44 features, lam .25 to 1, m 5 to 10, a judge trained on
    random subsets of features and advocates trained by self-play; ours are asked, not trained.

    Confidence: partial; the game and the reward are read in the published code; ours: greedy or asked advocates.
    """

    is_method: ClassVar[bool] = True

    judge: JudgeScore = JudgeScore(template=JUDGED)
    advocate: Asked | None = None
    argued: str = ARGUED
    reveals: int = 6
    advocates: Literal["both", "own"] = "both"
    evidence: str = "evidence"
    baseline: str = "baseline"
    name: str = "debate"

    def __post_init__(self) -> None:
        if self.reveals < 1:
            raise ValueError(f"Debated.reveals is {self.reveals}; a judge must see at least one piece of evidence")
        missing = [place for place in ("{evidence}", "{decision}") if place not in self.judge.template]
        if missing:
            raise ValueError(
                f"the template of Debated.judge lacks {' and '.join(missing)}: start from rewards.debate.JUDGED"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.run.policy.family.judged:
            yield Refusal(
                f"Debated has a judge read what the policy wrote, and {type(whole.run.policy).__name__} writes nothing: leave Debated "
                "out of rewards, or begin with debate"
            )

    def __call__(self, group: Group) -> list[float | None]:
        task = group.task
        pieces, baseline = task.columns.get(self.evidence), task.columns.get(self.baseline)
        if not pieces or baseline is None:
            return [None] * len(group.rollouts)
        table = _Table(self, task, [str(piece) for piece in pieces], str(baseline))
        games = {rollout.text: _Game(decision=rollout.text) for rollout in group.rollouts}  # equal decisions, one game
        table.play(list(games.values()))
        outcomes = dict(zip(games, table.outcomes(list(games.values())), strict=True))
        return [outcomes[rollout.text] for rollout in group.rollouts]


@dataclass(frozen=True)
class _Table:
    """Plays the games of one task concurrently."""

    rule: Debated
    task: Task
    pieces: list[str]
    baseline: str

    def play(self, games: Sequence[_Game]) -> None:
        everything = set(range(len(self.pieces)))
        if self.rule.reveals >= len(everything):
            for game in games:
                game.revealed = everything
            return
        for turn in range(self.rule.reveals):
            side = 1 if turn % 2 == 0 or self.rule.advocates == "own" else -1
            live = [game for game in games if game.lost is None]
            (self._greedy if self.rule.advocate is None else self._argued)(live, side)

    def outcomes(self, games: Sequence[_Game]) -> list[float | None]:
        margins = self._margins([(game, game.revealed) for game in games if game.lost is None])
        won = iter(margin if isinstance(margin, NoVerdict) else float(margin > 0) for margin in margins)
        return [next(won) if game.lost is None else game.lost for game in games]

    def _greedy(self, games: Sequence[_Game], side: int) -> None:
        hidden = [[p for p in range(len(self.pieces)) if p not in game.revealed] for game in games]
        tried = [(game, game.revealed | {p}) for game, places in zip(games, hidden, strict=True) for p in places]
        margins = iter(self._margins(tried))
        for game, places in zip(games, hidden, strict=True):
            seen = [next(margins) for _ in places]
            failed = [margin for margin in seen if isinstance(margin, NoVerdict)]
            if failed:
                game.lost = failed[0]
            else:
                best = max(range(len(places)), key=lambda i, seen=seen: (side * seen[i], -i))
                game.revealed = game.revealed | {places[best]}

    def _argued(self, games: Sequence[_Game], side: int) -> None:
        assert self.rule.advocate is not None
        hidden = [[p for p in range(len(self.pieces)) if p not in game.revealed] for game in games]
        questions = []
        for game, places in zip(games, hidden, strict=True):
            decision, other = (game.decision, self.baseline)[::side]
            listed = "\n".join(f"{number}. {self.pieces[p]}" for number, p in enumerate(places, start=1))
            more = {"decision": decision, "other": other, "evidence": self._shown(game.revealed), "hidden": listed}
            questions.append(fill(self.rule.argued, self.task, more))
        judge = self.rule.judge
        replies = ask(
            self.rule.advocate,
            questions,
            name=f"{self.rule.name}_advocate",
            threads=judge.threads,
            timeout=judge.timeout,
        )
        for game, places, reply in zip(games, hidden, replies, strict=True):
            numbers = re.findall(r"\d+", str(reply))
            named = numbers[-1].lstrip("0") if numbers else ""
            if isinstance(reply, NoVerdict):
                game.lost = reply
            elif not named or len(named) > 9 or int(named) > len(places):
                game.lost = NoVerdict(f"{self.rule.name}_advocate_unparsable")
            else:
                game.revealed = game.revealed | {places[int(named) - 1]}

    def _margins(self, positions: Sequence[tuple[_Game, set[int]]]) -> list[float]:
        """J(rollout) - J(baseline) on each set of revealed pieces; a NoVerdict where the judge gave none."""
        questions = [
            fill(self.rule.judge.template, self.task, {"evidence": self._shown(revealed), "decision": decision})
            for game, revealed in positions
            for decision in (game.decision, self.baseline)
        ]
        found = [math.nan if value is None else value for value in self.rule.judge.verdicts(questions)]
        pairs = zip(found[::2], found[1::2], strict=True)
        return [_margin(own, other, self.rule.name) for own, other in pairs]

    def _shown(self, revealed: set[int]) -> str:
        return "\n".join(self.pieces[place] for place in sorted(revealed))


def _margin(own: float, other: float, name: str) -> float:
    for value in (own, other):
        if isinstance(value, NoVerdict):
            return value
    return own - other if math.isfinite(own - other) else NoVerdict(f"{name}_unscored")
