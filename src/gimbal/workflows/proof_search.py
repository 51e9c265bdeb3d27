"""Best-first search for a proof, by a policy that writes one tactic, a segment of them, or the whole proof at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import CONTINUE, DRAW
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.environments.natural_deduction import GOAL, NaturalDeduction
from gimbal.records import Drop, Episode, Rollout, Task, is_chat
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Act, Attempt, Draw, Steps
from gimbal.workflows.dialogue import paid

NEXT = "\n"  # between tactics, and behind a state


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What is open after some tactics, and where in the attempt's environments it stands."""

    shown: str
    seat: int
    acts: int  # of that seat
    tactics: int = 0  # from the theorem to here
    logprob: float = 0.0  # of all tactics on the way
    rows: tuple[Rollout, ...] = ()  # that hold them
    proved: bool = False


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of one candidate: the states that it reached, and the tokens of all its rows."""

    states: tuple[Reached, ...]
    rows: tuple[Rollout, ...]
    broken: Drop | None = None

    @property
    def tokens(self) -> int:
        return sum(row.length for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class ProofSearch(AbstractWorkflow):
    """Searches for a proof, best state first, until ``tokens`` tokens are drawn (the search of SEG-ATP, arXiv:2605.11905, and of
    BFS-Prover, arXiv:2502.03438). Nothing is trained by it; it is for evaluations (``held_out.workflow``).

    A state's worth is

        sum of log p(tactic | what the policy was shown) / L^``alpha``,

    over the L tactics from the theorem to it. The best one is shown to the policy, which writes ``candidates`` answers, of one tactic
    or of several, one a line. Each tactic goes to ``prover`` as soon as it is written, so that an answer ends at the first that fails,
    and each new state on the way is one to go on from.

    ``rollout``: an answer that changed how many goals are open is followed by as many answers more, one after another, until one
    changes the number again, fails or ends the proof (goal-aware rollouts). ``goal`` is the sign that a state shows once for each goal.

    - ``rollout`` 0 and a policy of single tactics: plain best-first search.
    - ``candidates`` as many as ``tokens`` pay for: independent proofs from the theorem, as far as each of them goes.
    - temperature 0: one candidate for each state.

    The search stops when no state is left. It may draw more than ``tokens`` by the last state's candidates.

    Log-probabilities: each tactic is the policy's own, but the path is chosen, so it is no sample to train on.

    Confidence: abstract only. That a change of the number of open goals starts a rollout is from summaries of the paper; ours: when it
    ends. The worth is BFS-Prover's.
    """

    prover: AbstractEnvironmentSpec = NaturalDeduction()
    goal: str = GOAL
    candidates: int = 4
    tokens: int = 256
    rollout: int = 0
    alpha: float = 0.5
    deadline: float = 60.0

    def __post_init__(self) -> None:
        if self.candidates < 1 or self.tokens < 1 or self.rollout < 0:
            raise ValueError(
                f"ProofSearch has candidates {self.candidates}, tokens {self.tokens} and rollout {self.rollout}; expected 1 or more "
                "candidates and tokens, and 0 or more answers of a rollout"
            )
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"ProofSearch.alpha is {self.alpha}; it is a power of the length, from 0 to 1")
        if not self.goal:
            raise ValueError(
                "ProofSearch.goal is empty; it is the sign that a state has once for each open goal, such as ⊢"
            )

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE})

    def accepts(self, task: Task) -> None:
        if is_chat(task.columns.get("messages")):
            raise ValueError(
                f"task {task.id} is a chat; ProofSearch shows the policy a state as plain text: give it as the prompt"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        held_out = whole.run.held_out
        evaluates = held_out is not None and isinstance(held_out.workflow, ProofSearch)
        if len(whole.all(ProofSearch)) > evaluates:
            yield Refusal(
                "ProofSearch chooses among what the policy writes, so its proofs are no sample to train on: give it as "
                "held_out.workflow='ProofSearch(...)', and train on single turns or demonstrations"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first = yield Act(environment=self.prover, seat=0, deadline=self.deadline)
        if first.error:
            return Drop(first.failed, said=first.error)
        shown = first.observation or attempt.task.prompt.strip(NEXT)
        waiting = [(0.0, 0, Reached(shown=shown, seat=0, acts=0))]
        known, seats, drawn, last = {shown}, 0, 0, list[Rollout]()
        width = self.candidates if attempt.sampling.temperature else 1
        while waiting and drawn < self.tokens:
            *_, state = heappop(waiting)
            tried: list[Tried] = yield [self._candidate(attempt, state, seats + n) for n in range(1, width + 1)]
            seats += width
            drawn += sum(one.tokens for one in tried)
            for one in tried:
                if one.broken:
                    return one.broken
                for new in one.states:
                    if new.proved:
                        return Episode(rows=new.rows, spent=drawn - sum(row.length for row in new.rows))
                    if new.shown not in known:
                        known.add(new.shown)
                        heappush(waiting, (-new.logprob / new.tactics**self.alpha, len(known), new))
            last = last or list(tried[0].rows[:1])
        return Episode(rows=tuple(last), spent=drawn - sum(row.length for row in last))

    def _candidate(self, attempt: Attempt, state: Reached, seat: int) -> Steps:
        """One answer to a state, and the rollout that it may be followed by."""
        reached, rows, most = list[Reached](), list[Rollout](), 1
        here = state
        while len(rows) < most:
            found: Tried = yield from self._answer(attempt, here, (state.seat, state.acts), seat)
            rows += found.rows
            reached += found.states
            if found.broken or not found.states or found.states[-1].proved or found.rows[0].stop != "stop":
                return Tried(states=tuple(reached), rows=tuple(rows), broken=found.broken)
            changed = found.states[-1].shown.count(self.goal) != here.shown.count(self.goal)
            if most == 1 and changed:
                most += self.rollout
            elif changed:
                break
            here = found.states[-1]
        return Tried(states=tuple(reached), rows=tuple(rows))

    def _answer(self, attempt: Attempt, state: Reached, after: tuple[int, int], seat: int) -> Steps:
        """Tactics that the policy writes to a state, each done as soon as it is written."""
        task = replace(attempt.task, prompt=f"{state.shown}{NEXT}")
        row: Rollout = yield Draw(task=task, sample=attempt.sample, sampling=attempt.sampling, stop=(NEXT,))
        states, here, done = list[Reached](), state, 0
        while row.stop in (PAUSED, "stop"):
            tactic, done = row.text[done:].strip(), len(row.text)
            act = Act(environment=self.prover, action=tactic, seat=seat, after=after, deadline=self.deadline)
            moment: Any = yield act
            if moment.error:
                return Tried(states=(), rows=(row,), broken=Drop(moment.failed, said=moment.error))
            proved = moment.terminated and moment.reward > 0
            if moment.errors or (moment.ended and not proved):
                break
            if moment.observation is None and not proved:
                raise ValueError(
                    f"ProofSearch shows the policy what is open, and {type(self.prover).__name__} showed nothing after the tactic "
                    f"{tactic!r:.40}: give a prover whose step returns Moment(observation=STATE)"
                )
            here = Reached(
                shown=str(moment.observation),
                seat=seat,
                acts=here.acts + 1,
                tactics=here.tactics + 1,
                logprob=state.logprob + float(row.behavior_S.sum()),
                rows=(*state.rows, paid(row, [(row.length - 1, moment.reward)] if moment.reward else [])),
                proved=proved,
            )
            states.append(here)
            if here.proved or row.stop != PAUSED:
                break
            row = yield Draw(row=row, stop=(NEXT,))
        sound = states[-1].rows[-1].length if states else 0
        failed = row.stop in (PAUSED, "stop") and sound < row.length
        return Tried(states=tuple(states), rows=(replace(row, stop="error") if failed else row,))
