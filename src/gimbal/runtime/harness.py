"""An agent's harness, improved by edits that say beforehand which tasks they will fix. No weights move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gimbal.config.overrides import override

H = TypeVar("H")
Passes = Mapping[
    str, float
]  # a task's id -> the mean score of its attempts: the share that pass, where scores are 0 and 1


@dataclass(frozen=True, kw_only=True)
class HarnessEdit:
    """A change of a harness and what it is expected to do: ``fixes``, ids of tasks that will pass more often, and ``risks``, of those
    that may pass less often. ``changes`` are overrides of a run, such as {"workflow.answers": 4}; ``why`` is for the reader."""

    name: str
    changes: Any
    fixes: frozenset[str]
    risks: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class EditDecision:
    """What came of an edit. ``precision``: the share of ``fixes`` that pass more often; ``fixed`` and ``gain``: by how much they and
    all tasks do, in the mean; ``regressed``: the tasks that pass less often, and ``unforeseen`` those of them that were no risk.
    ``refused``: why it was not tried, "" if it was."""

    edit: HarnessEdit
    kept: bool
    precision: float = 0.0
    fixed: float = 0.0
    gain: float = 0.0
    regressed: frozenset[str] = frozenset()
    unforeseen: frozenset[str] = frozenset()
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class HarnessLoop:
    """Tries one edit of a harness a round, holds it to its forecast, and takes it back if that was wrong (AHE, arXiv:2604.25850).

    p(x) is the mean score of the attempts at task x: the share that pass where scores are 0 and 1, and 0 where none could be scored.
    An edit that names the tasks F is kept if it gains, and what it gains is its own:

        mean_x (p'(x) - p(x)) > 0,   mean_{x in F} (p'(x) - p(x)) > 0,   |{x in F: p'(x) > p(x)}| / |F| >= precision.

    Otherwise the harness is what it was before. The evaluation of a kept one is what the next is compared with.

    - ``precision`` 0, and edits that name all tasks: hill climbing, what raises the pass rate stays.
    - an edit that changes nothing: taken back, if attempts come out alike.

    No weights move: a run is only evaluated. Whoever proposes edits (a language model that reads the decisions, a person, a list) is
    the caller's, and so is how good the result can be.

    Confidence: partial (edits with forecasts, attribution, roll back); ours: the rule. Left out: several edits a round, and digests
    of traces.
    """

    rounds: int = 10
    precision: float = 0.5

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 <= self.precision <= 1:
            raise ValueError(
                f"HarnessLoop has rounds={self.rounds} (1 or more) and precision={self.precision} (a share of forecasts, 0 to 1)"
            )

    def judge(self, edit: HarnessEdit, before: Passes, after: Passes) -> EditDecision:
        """Whether an edit is kept. ValueError for a forecast about tasks that are not evaluated, or about none."""
        # A task of which no attempt could be scored any more is lost, not left out: else an edit that breaks it would gain.
        change = {task: after.get(task, 0.0) - before[task] for task in before}
        self._check(edit, change)
        named = [change[task] for task in edit.fixes]
        precision, fixed = (sum(value > 0 for value in named) / len(named), sum(named) / len(named))
        gain = sum(change.values()) / len(change)
        regressed = frozenset(task for task, value in change.items() if value < 0)
        return EditDecision(
            edit=edit,
            kept=gain > 0 and fixed > 0 and precision >= self.precision,
            precision=precision,
            fixed=fixed,
            gain=gain,
            regressed=regressed,
            unforeseen=regressed - set(edit.risks),
        )

    def _check(self, edit: HarnessEdit, known: Mapping[str, float]) -> None:
        if not edit.fixes or not set(edit.fixes) <= known.keys():  # of whoever proposes: it may be a list
            wrong = (
                f"{sorted(set(edit.fixes) - known.keys())[:3]}, which were not evaluated" if edit.fixes else "no task"
            )
            raise ValueError(
                f"the edit {edit.name!r} says it will fix {wrong}; name tasks of the evaluation by their ids, as {sorted(known)[:3]}"
            )

    def __call__(
        self,
        harness: H,
        propose: Callable[[H, Passes, Sequence[EditDecision]], HarnessEdit | None],
        measure: Callable[[H, int], Passes],
        apply: Callable[[H, Any], H] = override,
    ) -> tuple[H, list[EditDecision]]:
        """The harness in the end, and every decision. ``propose`` sees the harness, what passes and the decisions so far, and ends the
        loop by None. ``measure`` evaluates a harness: the number of the evaluation, from 0, is for seeds. An edit that names other
        tasks than those, or that ``apply`` refuses, is not tried; its decision says why."""
        decisions = list[EditDecision]()
        passes = measure(harness, 0)
        for number in range(1, self.rounds + 1):
            edit = propose(harness, passes, decisions)
            if edit is None:
                break
            try:
                self._check(edit, passes)
                tried = apply(harness, edit.changes)
            except ValueError as error:  # of whoever proposes, perhaps a model: what was decided so far stays
                decisions.append(EditDecision(edit=edit, kept=False, refused=str(error)))
                continue
            found = measure(tried, number)
            decisions.append(decision := self.judge(edit, passes, found))
            if decision.kept:
                harness, passes = tried, {task: found.get(task, 0.0) for task in passes}
        return harness, decisions
