"""A run in words: what it learned, how stable it was, what it cost, and which of several runs ended best."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gimbal.report.arms import BOOKKEEPING, RunOnDisk, arms
from gimbal.report.doctor import diagnosis_of
from gimbal.report.files import DRAWN, Summary, cost, duration
from gimbal.report.held_out import SMALLER, figures, measures, only_graded, smaller, solving
from gimbal.report.loop import account
from gimbal.report.record import CURVE, FAMILIES, RETURN, TOKENS, TREND, Change, Record, moving, noise

LOSSES = ("held-out loss", "training loss")
Columns = Mapping[str, Sequence[float | None]]  # a metric's values, one per step; None is unknown


def describe(runs: Sequence[RunOnDisk]) -> tuple[list[dict[str, Any]], list[str]]:
    """(each run as shown on the page, the keys in which the recipes differ).

    ``family`` numbers the recipes: seeds of one recipe share it and its ``label``. Runs are judged by one metric: the evaluation's
    if all of them ended with the same, else that of training.
    """
    records = [Record(run.directory) for run in runs]
    only_scores = graded(runs)
    shown = [{name: x for name, x in run.metrics.items() if not (only_scores and solving(name))} for run in runs]
    both = list(zip(runs, shown, records, strict=True))
    figures = [learned(run.summary, metrics, record.learned, recorded=record.offline) for run, metrics, record in both]
    if len({figure["figure"] for figure in figures}) > 1:
        figures = [learned(None, metrics, None, recorded=record.offline) for _, metrics, record in both]
    keys = list(dict.fromkeys(run.key for run in runs))
    values = {key: {str(run.settings.get(key)) for run in runs} for run in runs for key in run.settings}
    differs = [key for key, found in values.items() if len(found) > 1]
    labels = _labels([[run for run in runs if run.key == key] for key in keys], differs)
    described = [
        {
            "name": run.name,
            "label": labels[keys.index(run.key)],
            "family": keys.index(run.key),
            "seed": run.seed,
            "settings": {key: str(value) for key, value in run.settings.items()},
            "ended": run.summary is not None,
            "learned": figure,
            "signs": signs(metrics, run.settings, record, figure["text"]),
            "cost": costs(run.summary, metrics),
            "evaluation": _evaluation(run.summary) if run.summary else [],
            "steps": [row["step"] for row in run.rows],
            "metrics": metrics,
            "recipe": run.recipe,
            "film": run.film,
        }
        for (run, metrics, record), figure in zip(both, figures, strict=True)
    ]
    return described, differs


def graded(runs: Sequence[RunOnDisk]) -> bool:
    """Whether no answer of these runs reached 1, so that scores are shown, and not what is solved."""
    ends = [(run.summary.before, run.summary.after) if run.summary else () for run in runs]
    return bool(runs) and all(only_graded(run.metrics, *both) for run, both in zip(runs, ends, strict=True))


def _labels(families: Sequence[Sequence[RunOnDisk]], differs: Sequence[str]) -> list[str]:
    """A label per family: what its runs' names share before the seed, or its recipe with what differs, or its first run."""
    stems = [{re.sub(r"-s?\d+$", "", run.name) if len(runs) > 1 else run.name for run in runs} for runs in families]
    if all(len(stem) == 1 for stem in stems) and len(set.union(*stems)) == len(families):
        return [stem.pop() for stem in stems]
    apart = [key for key in differs if key != "recipe" and key.removeprefix("run.") not in BOOKKEEPING][:2]
    told = [", ".join(f"{key.rpartition('.')[2]}={runs[0].settings.get(key)}" for key in apart) for runs in families]
    recipes = [str(runs[0].settings.get("recipe", runs[0].name)) for runs in families]
    for labels in (recipes, [f"{recipe} ({words})" for recipe, words in zip(recipes, told, strict=True)]):
        if len(set(labels)) == len(labels):
            return labels
    return [runs[0].name for runs in families]


def _evaluation(summary: Summary) -> list[tuple[str, float | None, float | None]]:
    """(figure, before, after), in the order of the evaluation."""
    names = {**summary.before, **summary.after}
    return [(name.removeprefix("eval/"), summary.before.get(name), summary.after.get(name)) for name in names]


def edges(values: Sequence[float | None]) -> tuple[float, float] | None:
    """Means over the first and the last tenth of the steps (at least one), over steps that have the value."""
    known = [value for value in values if value is not None]
    tenth = max(1, len(known) // 10)
    return (sum(known[:tenth]) / tenth, sum(known[-tenth:]) / tenth) if known else None


def learned(
    summary: Summary | None, metrics: Columns, evaluation: Change | None, *, recorded: bool = False
) -> dict[str, Any]:
    """The metric a run is judged by: {figure, before, after, noise, text}.

    It is the sampled held-out evaluation if the run ended, else the training reward (for ``recorded`` answers the
    loss) over the first and the last tenth of its steps. ``noise`` is the change that chance explains (for the evaluation:
    ``evaluation``); None if unknown.
    """
    if summary is not None:
        for key, name in figures(summary.before, summary.after).items():
            before, after = summary.before[key], summary.after[key]
            chance = None
            if evaluation is not None and evaluation.error is not None and evaluation.name == key:
                chance = evaluation.limit * evaluation.error
            return {
                "figure": name,
                "before": before,
                "after": after,
                "noise": chance,
                "text": _moved(name, before, after, chance),
            }
    scored = (("pass_rate", "share solved in training"), (RETURN, "mean return of the episodes that ended in training"))
    if not any(metrics.get("reward/mean", ())):  # rewards that only measure: their sum is no score
        scored += tuple(
            (key, f"{name} in training{SMALLER * smaller(key)}") for key, name in measures(metrics, "reward/").items()
        )
    scored += (("reward/mean", "mean score in training"), ("loss", "training loss"))
    for key, name in (("loss", "training loss"),) if recorded else scored:
        if (ends := edges(metrics.get(key, ()))) is not None:
            known = [value for value in metrics[key] if value is not None]
            chance = CURVE * math.sqrt(2 * noise(known) / max(1, len(known) // 10)) if len(known) >= TREND else None
            text = _moved(name, *ends, chance) + " (first and last tenth of the steps, on training tasks)"
            return {"figure": name, "before": ends[0], "after": ends[1], "noise": chance, "text": text}
    return {"figure": "", "before": None, "after": None, "noise": None, "text": "There is no result yet."}


def _moved(name: str, before: float, after: float, chance: float | None) -> str:
    change = after - before
    if chance is not None and abs(change) <= chance:
        return f"The {name} did not change beyond noise: {before:.3f} to {after:.3f}, where {chance:.3f} can be chance."
    if abs(change) < 5e-4:
        return f"The {name} stayed at {after:.3f}."
    if name in LOSSES or "/" in name:  # lower is better, or may be: avoid "fell", which elsewhere means trouble
        return f"The {name} went from {before:.3f} to {after:.3f} ({change:+.3f})"
    return f"The {name} {'rose' if change > 0 else 'fell'} from {before:.3f} to {after:.3f} ({change:+.3f})"


def signs(metrics: Columns, recipe: Mapping[str, Any], record: Record, told: str = "") -> list[dict[str, Any]]:
    """The checks for trouble, each {what, bad, text} with its figure; what was not recorded is left out.

    What fell, and why, comes from the doctor. The other limits are coarse on purpose: they show where to look. ``told`` is
    the sentence on what was learned: if it reports a fall, a silent doctor does not overrule it.
    """
    found: list[dict[str, Any]] = []

    def sign(what: str, bad: bool, text: str) -> None:
        found.append({"what": what, "bad": bad, "text": text})

    for doctors in diagnosis_of(record).signs:
        sign(doctors.name, True, doctors.evidence)
    fell = bool(record.fallen) or " fell from " in told
    if fell and not record.fallen:
        sign("fell", True, told)
    faults = {
        key.rpartition("faults.")[2]: value
        for key, value in recipe.items()
        if "faults" in key.split(".") and value not in (None, "null", 0, "Faults")
    }
    faults.pop("slow_steps", None)  # a size that is never 0 and not a fault
    if faults:
        sign("faults", True, "Faults were injected on purpose: " + ", ".join(f"{k}={v}" for k, v in faults.items()))
    if done := account(metrics):
        sign("closed loop", False, done)
    if chosen := _selection(metrics):
        sign("selection", False, chosen)
    returned = [i for i, version in enumerate(metrics.get("loop/returned", ())) if version is not None]
    broken = [i for name in ("loss", "grad_norm") for i, v in enumerate(metrics.get(name, ())) if v is None]
    # What went back to an earlier version, or only filled a buffer, has no loss.
    filled = [i for i, moved in enumerate(moving(metrics.get("replay/moves", ()))) if not moved]
    broken = [i for i in broken if i not in returned and i not in filled]
    if "loss" in metrics:
        sign("loss", bool(broken), f"not finite in {len(set(broken))} steps" if broken else "finite in every step")
    if not fell:  # no check marks next to a fall
        if record.evaluation is not None:
            sign("evaluation", record.evaluation.sank, record.evaluation.of_best)
        change = None if record.offline else record.from_best(record.earned)
        if change is not None:
            sign("reward", change.sank, f"score, {change.of_best}")
    for limit in LIMITS:
        if record.family in limit.families and (ends := edges(metrics.get(limit.metric, ()))) is not None:
            sign(limit.what, limit.bad(*ends), limit.text.format(*ends))
    return found


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A place to look: ``bad`` decides on a metric's first and last tenth, for these policy families."""

    metric: str
    what: str
    bad: Callable[[float, float], bool]
    text: str
    families: Sequence[str | None] = FAMILIES


LIMITS = (
    Limit(
        metric="mismatch/prob_diff",
        what="discrepancy",
        bad=lambda first, last: last > 0.05,
        text="mean |p - p'| of sampler and trainer: {1:.4f} at the end",
        families=(TOKENS, None),
    ),
    Limit(
        metric="mismatch/ess_token",
        what="weights",
        bad=lambda first, last: last < 0.5,
        text="effective sample share {1:.3f} at the end",
    ),
    Limit(
        metric="entropy/mean",
        what="entropy",
        bad=lambda first, last: 0 < last < 0.1 * first,
        text="entropy went from {0:.3f} to {1:.3f}",
        families=(TOKENS, None),
    ),
    Limit(
        metric="length/truncated_frac",
        what="length",
        bad=lambda first, last: last > 0.5,
        text="{1:.1%} of rollouts cut off at the limit at the end",
        families=(TOKENS, None),
    ),
    Limit(
        metric="reward/zero_std_frac",
        what="signal",
        bad=lambda first, last: last > 0.9,
        text="{1:.0%} of groups have equal scores, so nothing to learn from, at the end",
        families=(TOKENS, None),
    ),
)


def costs(summary: Summary | None, metrics: Columns) -> dict[str, Any]:
    """{seconds, decisions, text}."""
    if summary is not None:
        return {"seconds": summary.seconds_training, "decisions": summary.tokens_generated, "text": cost(summary)}
    tokens = [value for name in DRAWN for value in metrics.get(name, ()) if value is not None]
    steps = len(next(iter(metrics.values()), ()))
    text = [f"The run is not finished; {steps} of its steps are recorded."]
    return {
        "seconds": sum((v or 0.0 for v in metrics.get("time/step", ())), 0.0),
        "decisions": tokens[-1] if tokens else 0,
        "text": text,
    }


def conclusion(runs: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on all runs; seeds of one recipe (the same ``family``) count once."""
    if len(runs) == 1:
        run = runs[0]
        bad = [sign["what"] for sign in run["signs"] if sign["bad"]]
        looked = ", ".join(sign["what"] for sign in run["signs"])
        stable = f"Look at: {', '.join(bad)}." if bad else f"No sign of trouble in {looked}." if looked else ""
        count = len(run["steps"])
        so_far = "" if run["ended"] else " so far"
        spent = f"{count} step{'s' * (count != 1)} in {duration(run['cost']['seconds'])}{so_far}."
        return " ".join(part for part in (run["learned"]["text"].rstrip(".") + ".", stable, spent) if part)
    families: dict[int, list[Mapping[str, Any]]] = {}
    for run in runs:
        families.setdefault(run["family"], []).append(run)
    scores = {
        family: [r["learned"]["after"] for r in members if r["learned"]["after"] is not None]
        for family, members in families.items()
    }
    figures = {run["learned"]["figure"] for run in runs if run["learned"]["after"] is not None}
    if len(figures) != 1:
        return "These runs have no metric in common, so none is called best; the table shows each run's metric."

    def told(family: int) -> str:
        values = scores[family]
        mean = sum(values) / len(values)
        seeds = f" ({len(values)} seeds, {min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
        return f"{families[family][0]['label']} {mean:.3f}{seeds}"

    (figure,) = figures
    best, sign = ("Lowest", 1) if figure in LOSSES or figure.endswith(SMALLER) else ("Highest", -1)
    ranked = sorted((f for f in scores if scores[f]), key=lambda f: sign * sum(scores[f]) / len(scores[f]))
    stable = _trouble(runs)
    if len(ranked) == 1:
        return f"One recipe, {len(scores[ranked[0]])} seeds. The {figure} at the end: {told(ranked[0])}.{stable}"
    return f"{best} {figure} at the end: {told(ranked[0])}; next {told(ranked[1])}.{stable}"


def _trouble(runs: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on the signs of trouble, by recipe."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for sign in run["signs"]:
            if sign["bad"]:
                found.setdefault(run["label"], {})[sign["what"]] = None
    if found:
        return f" Look at {'; '.join(label + ': ' + ', '.join(signs) for label, signs in found.items())}."
    return " No sign of trouble in any of them." if all(run["signs"] for run in runs) else ""


def compared(runs: Sequence[Mapping[str, Any]], directories: Sequence[Path]) -> str:
    """``gimbal compare``'s verdict on these runs, or why there is none."""
    from gimbal.report.compare import compare
    from gimbal.report.verdict import blind, least_runs

    sides: dict[str, list[Path]] = {}
    best_first = sorted(zip(runs, directories, strict=True), key=lambda pair: -(pair[0]["learned"]["after"] or 0.0))
    for run, directory in best_first:
        sides.setdefault(run["label"], []).append(directory)
    try:
        found = compare(arms(list(sides.items())))
    except ValueError as error:
        return f"It is unknown whether that is chance: {error}."
    of, pairs = {arm.name: arm for arm in found.arms}, found.pairs
    if pairs and all(blind(of[pair.a], of[pair.b], len(pairs)) for pair in pairs):
        few, enough = min(len(arm.runs) for arm in found.arms), least_runs(len(pairs))
        each = "one run" if few == 1 else f"{few} runs"
        return f"With {each} each, chance cannot be excluded; with {enough} it can: --seeds {enough}."
    return found.verdict


def _selection(metrics: Mapping[str, Sequence[float | None]]) -> str:
    """In words, how trained rollouts differ from those sampled, asked and listed, from a run's metrics; "" without them."""

    def last(name: str) -> float | None:
        return next((value for value in reversed(metrics.get(name, ())) if value is not None), None)

    names = {"listed": "of the task list", "asked": "asked", "sampled": "sampled", "trained": "trained on"}
    sentences = []
    for quantity, form in (("success", "{:.1%}"), ("difficulty", "{:.1%}"), ("length", "{:.1f}")):
        found = {said: last(f"selection/{name}/{quantity}") for name, said in names.items()}
        known = [f"{form.format(value)} {said}" for said, value in found.items() if value is not None]
        if len(known) > 1:
            sentences.append(f"{quantity} {', '.join(known)}")
    prefix = "selection/lost/"
    losses = {name.removeprefix(prefix): last(name) or 0.0 for name in metrics if name.startswith(prefix)}
    if losses and (reason := max(losses, key=lambda name: losses[name])) and losses[reason] > 0:
        sentences.append(f"{losses[reason]:.1%} of what was sampled lost to {reason}")
    return "; ".join(sentences)
