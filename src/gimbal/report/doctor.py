"""Diagnose a run from its files: what fell, the likely cause with its evidence, and an experiment to confirm it.

First the outcome: the evaluation, the score, whether anything was learned. Then the causes: signs of the machinery, which are
always checked, and signs of the settings, which are checked only if the run fell or learned nothing. A rule checks one thing, has
one limit, stated with its reason, and applies to the policy families it is declared for. Rules run from causes to
effects, because a step that is too large also changes entropy, length and reward. No trace of injected faults (``faults`` in the
recipe, ``scores["faults"]``) is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gimbal.report import acting, denoised, failures, settings
from gimbal.report.files import lost
from gimbal.report.held_out import named
from gimbal.report.record import FAMILIES, RETURN, SAMPLES, TOKENS, WORTH, Change, Record, Sign, figure, when

NOTHING = "nothing wrong"
TEXT, MADE = (TOKENS,), (SAMPLES,)
STUCK = "cannot be resumed"
ENDS = (failures.STOP, STUCK)  # what ended it, or keeps it from going on, explains nothing that was learned


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Checks a run for ``sign``, for policies of these families: ``always``; if it fell, stopped or learned nothing; or, for a
    setting that is obviously wrong (``blatant``), also if it has not clearly learned. ``alone``: only if no other rule
    holds."""

    sign: Callable[[Record], Sign | None]
    families: Sequence[str | None] = FAMILIES
    always: bool = False
    blatant: bool = False
    alone: bool = False


# From causes to effects. The first that holds is the likely cause; all that hold are reported. If an error ended the run, the sign
# that says so comes first.
RULES: Sequence[Rule] = (
    Rule(sign=failures.stopped, always=True),
    Rule(sign=failures.damaged, always=True),
    Rule(sign=failures.no_delivery, always=True),
    Rule(sign=failures.not_finite, always=True),
    Rule(sign=failures.no_updates, always=True),
    Rule(sign=failures.undone, always=True),
    Rule(sign=failures.pegged, always=True),
    Rule(sign=failures.broken_limit, always=True),
    Rule(sign=failures.lost_samples, always=True),
    Rule(sign=acting.environment_errors, always=True),
    Rule(sign=failures.noisy_reward, families=TEXT, always=True),
    Rule(sign=failures.mismatch, always=True),
    Rule(sign=settings.no_rate, always=True),
    Rule(sign=settings.wrong_sign),
    Rule(sign=settings.reward_hacking, families=TEXT, always=True),
    Rule(sign=denoised.hacked, families=MADE, always=True),
    Rule(sign=denoised.mode_collapse, families=MADE, always=True),
    Rule(sign=denoised.clip_misfit, families=MADE, blatant=True),
    Rule(sign=settings.empty_answers, families=TEXT, always=True),
    Rule(sign=acting.tools_unused, families=TEXT, blatant=True),
    Rule(sign=acting.calls_fail, families=TEXT, blatant=True),
    Rule(sign=acting.turns_exhausted, families=TEXT, blatant=True),
    Rule(sign=acting.histories_rebuilt, families=TEXT, blatant=True),
    Rule(sign=acting.role_starved, families=TEXT, blatant=True),
    Rule(sign=settings.temperature, families=TEXT, blatant=True),
    Rule(sign=settings.cut_short, families=TEXT),
    Rule(sign=settings.loud_entropy, blatant=True),
    Rule(sign=failures.starved_at_once, always=True),
    Rule(sign=settings.few_rollouts, blatant=True),
    Rule(sign=failures.dead_gradient, always=True),
    Rule(sign=settings.staleness),
    Rule(sign=settings.fast),
    Rule(sign=settings.critic),
    Rule(sign=settings.held_back, blatant=True),
    Rule(sign=settings.slow),
    Rule(sign=failures.mismatch_grown, always=True),
    Rule(sign=failures.filter_starvation, always=True),  # after its possible causes
    Rule(sign=failures.gradient_died, always=True),
    Rule(sign=settings.length_runaway, families=TEXT, always=True),
    Rule(sign=settings.mostly_cut, families=TEXT, always=True),  # for a run that rewards length, after that rule
    Rule(sign=settings.entropy_collapse, families=TEXT, always=True),
    Rule(sign=settings.calm_fall, alone=True),
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The doctor's findings: ``outcomes`` (what fell, or that nothing was learned), then ``causes``, most likely first."""

    run: str
    steps: int
    outcomes: tuple[Sign, ...]
    causes: tuple[Sign, ...]
    looked_at: str
    unfinished: str = ""  # how far it has come, of a run that has not ended

    @property
    def signs(self) -> tuple[Sign, ...]:
        return self.outcomes + self.causes

    @property
    def name(self) -> str:
        """The outcome, if any, and the likely cause: ``evaluation fell: wrong sign``."""
        return ": ".join(signs[0].name for signs in (self.outcomes, self.causes) if signs) or NOTHING

    @property
    def cause(self) -> str:
        return self.causes[0].name if self.causes else ""

    def text(self) -> str:
        lines = [f"{self.run}: {self.name}", *([f"  {self.unfinished}"] if self.unfinished else [])]
        for sign in self.signs:
            lines.append(f"  {sign.name}: {sign.evidence}")
        if not self.signs:
            return "\n".join([*lines, f"  {self.looked_at}"])
        if not self.causes:
            lines.append(
                "  the metrics show no cause; if it also happens at a lower learning rate, check what the reward pays for"
            )
        elif self.outcomes and len(self.causes) > 1 and self.cause not in ENDS:
            others = ", ".join(sign.name for sign in self.causes[1:])
            lines.append(
                f"  {self.cause} is the most likely cause and may explain the rest ({others}); the next run changes only that"
            )
        lines.append(f"  next: {(self.causes or self.outcomes)[0].experiment}")
        return "\n".join(lines)

    def json(self) -> str:
        return json.dumps({"name": self.name, "cause": self.cause, **asdict(self)}, indent=1)


def diagnose(directory: Path, *, unfinished: str = "", fault: str = "") -> Diagnosis:
    """The diagnosis of a run by its directory; a ValueError if nothing is recorded. What its checkpoints say is told by the caller:
    how far an ``unfinished`` run has come, and why it cannot go on (``fault``)."""
    record = Record(directory)
    if not record.rows and (damage := lost(record.rows, record.summary.get("steps", 0))):
        raise ValueError(f"{directory}: {damage}, so there is nothing to judge the run by; put the file back")
    if not record.rows and record.stopped is None:
        raise ValueError(f"{directory} has neither metrics nor a record of why it stopped: let it finish a step first")
    found = diagnosis_of(record)
    if not fault:
        return replace(found, unfinished=unfinished)
    lasting = Sign(name=STUCK, evidence=fault, experiment=record.again())
    first = sum(sign.name in (failures.STOP, "damaged") for sign in found.causes)
    causes = (*found.causes[:first], lasting, *found.causes[first:])
    return replace(found, unfinished=unfinished, causes=causes)


def diagnosis_of(record: Record) -> Diagnosis:
    """The diagnosis of a recorded run."""
    fallen = [_fall(record, change) for change in record.fallen]
    ill = bool(fallen) or record.flat or record.stopped is not None
    asked = [
        rule
        for rule in RULES
        if record.family in rule.families and (rule.always or ill or (rule.blatant and record.unsure))
    ]
    named: dict[str, Sign] = {}
    explained = False
    for rule in asked:
        if not (rule.alone and named) and (sign := rule.sign(record)) is not None:
            named.setdefault(sign.name, sign)
            explained = explained or not rule.always
    if record.flat and (explained or _long(record)):
        fallen = [_nothing_learned(record)]
    ending = failures.ENDINGS.get(record.stopped["error"], failures.STOP) if record.stopped is not None else ""
    causes = tuple(sorted(named.values(), key=lambda sign: sign.name != ending))
    return Diagnosis(
        run=str(record.directory),
        steps=len(record.rows),
        outcomes=tuple(fallen),
        causes=causes,
        looked_at=_looked_at(record),
    )


def _fall(record: Record, change: Change) -> Sign:
    """What fell from its best value to the last, and the checkpoint to go back to."""
    if change.name.startswith("eval/"):
        evidence = f"held-out {named(change.name)} went from {change}"
        if record.learned is not None and change.start.step:
            evidence += f"; it was {figure(record.learned.start.value)} {when(record.learned.start.step)}"
    else:
        what = "the pass rate" if change.name == "pass_rate" else _scored(record)
        evidence = f"{what} went from {change}, means over several steps"
    saved = record.checkpoint(change.start.step)
    if saved is not None:
        evidence += f"; {saved} is from before the fall"
    elif change.start.step:
        evidence += "; no checkpoint from before the fall was kept (checkpoint_every, keep_checkpoints)"
    return Sign(
        name="evaluation fell" if change.name.startswith("eval/") else "reward fell",
        evidence=evidence,
        experiment=record.again(record.rate(0.3)),
    )


def _long(record: Record) -> bool:
    """Whether the run is long and steady enough that a worthwhile gain would have shown."""
    score = record.reward
    if score is None or score.error is None or len(record.rows) < settings.LONG:
        return False
    size = 1.0 if 0 <= score.start.value <= 1 else abs(score.start.value)
    return score.gain + score.limit * score.error < WORTH * size


def _scored(record: Record) -> str:
    """What its training score is."""
    return "the score" if record.earned in ("reward/mean", RETURN) else named(record.earned)


def _nothing_learned(record: Record) -> Sign:
    told = []
    if record.learned is not None:
        told.append(f"held-out {named(record.learned.name)} went from {record.learned}")
    if record.reward is not None:
        told.append(f"{_scored(record)} in training went from {record.reward}")
    unknown = record.learned is not None and record.learned.error is None
    chance = "no change that is sure: how noisy this figure is, is not known" if unknown else "no change beyond chance"
    return Sign(
        name="nothing learned",
        evidence=f"{', '.join(told)}: {chance}",
        experiment=record.again(record.rate(3.0)),
    )


def _looked_at(record: Record) -> str:
    """The figures of a run without signs, so that a clean result can be checked."""
    figures: dict[str, Any] = {
        "pass rate": record.late("pass_rate") if record.family == TOKENS else None,
        _scored(record).removeprefix("the "): record.late(record.earned),
        "entropy": record.late("entropy/sampled"),
        "mismatch": record.late("mismatch/prob_diff"),
        "staleness": record.late("staleness/mean"),
        "groups kept": record.late("kept_frac"),
        "gradient norm": record.late("grad_norm"),
        "length": record.late("length/mean"),
        "share cut off at max_length": record.late("length/truncated_frac") if record.family == TOKENS else None,
    }
    shown = [f"{name} {value:.3g}" for name, value in figures.items() if value is not None]
    held_out = ""
    if record.evaluation is not None:
        held_out = f"held-out {named(record.evaluation.name)} {record.evaluation.of_best}; "
    return f"{len(record.rows)} step{'s' * (len(record.rows) != 1)}; {held_out}medians over the second half: {', '.join(shown)}"
