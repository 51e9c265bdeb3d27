"""A comparison in words: one sentence per pair, and a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gimbal.report.comparison import ALPHA, ArmResult, Comparison, Estimate, PairResult
from gimbal.report.files import duration
from gimbal.report.held_out import smaller


def verdict(comparison: Comparison) -> str:
    return " ".join(sentences(comparison))


def sentences(comparison: Comparison) -> list[str]:
    """One sentence for each pair, or for a single arm."""
    arms = {arm.name: arm for arm in comparison.arms}
    if len(arms) == 1:
        return [_alone(comparison, comparison.arms[0])]
    found = []
    for pair in comparison.pairs:
        words = [_tokens(comparison, pair, arms), _final(comparison, pair, arms)]
        text = "; ".join(part for part in words if part)
        found.append((text[0].upper() + text[1:] if text.startswith("no ") else text) + ".")
    return found


def _alone(comparison: Comparison, arm: ArmResult) -> str:
    text = f"{arm.name}: {short(comparison.metric)} {figure(arm.score)} over {_runs(len(arm.runs))}"
    if arm.tokens is not None:
        text += f"; {_reaches(comparison, arm)}"
    return text + "."


def _tokens(comparison: Comparison, pair: PairResult, arms: dict[str, ArmResult]) -> str:
    """About the time to the threshold."""
    a, b = arms[pair.a], arms[pair.b]
    if a.tokens is None or b.tokens is None:
        return ""
    level = _level(comparison)
    if a.tokens.reached == b.tokens.reached == 0:
        return f"no run reaches {level}"
    if pair.tokens is None or not (0 < pair.tokens.value < math.inf):
        told = [f"{arm.name} reaches {level} in {_arrived(arm)}" for arm in (a, b)]
        return " and ".join(told) + _unsure(pair.tokens_differ, a, b)
    if pair.tokens_differ:
        return f"{pair.a} reaches {level} in {figure(pair.tokens, 'x')} the {comparison.unit} of {pair.b}" + _missing(
            a, b
        )
    return (
        f"no difference shown in the {comparison.unit} to {level}: {pair.a} takes {figure(pair.tokens, 'x')} the {comparison.unit} of "
        f"{pair.b}" + _missing(a, b)
    )


def _final(comparison: Comparison, pair: PairResult, arms: dict[str, ArmResult]) -> str:
    name, a, b = short(comparison.metric), arms[pair.a], arms[pair.b]
    both = f"{figure(a.score)} and {figure(b.score)}"
    if pair.differ:
        more = "higher" if (pair.improvement.value > 0.5) != smaller(comparison.metric) else "lower"
        return f"final {name} of {pair.a} is {more} than that of {pair.b}: {both}"
    if blind(a, b, len(comparison.pairs)):
        x, y = len(a.scores[0]), len(b.scores[0])
        few = f"{_runs(x)} each" if x == y else f"{x} and {_runs(y)}"
        return (
            f"final {name} is {both}, but {few} cannot show a difference ({least_runs(len(comparison.pairs))} each can)"
        )
    return f"no difference shown in final {name}: {both}"


def blind(a: ArmResult, b: ArmResult, pairs: int) -> bool:
    """Whether there are too few runs for the test to show any difference."""
    x, y = len(a.scores[0]), len(b.scores[0])
    return len(a.scores) == 1 and 2 / math.comb(x + y, x) > ALPHA / pairs


def least_runs(pairs: int) -> int:
    """Least runs per arm for the permutation test to show a difference."""
    return next(runs for runs in range(2, 100) if 2 / math.comb(2 * runs, runs) <= ALPHA / pairs)


def _unsure(differ: bool, a: ArmResult, b: ArmResult) -> str:
    return "" if differ else " (no difference shown)"


def _missing(a: ArmResult, b: ArmResult) -> str:
    """Runs that never arrived, if any."""
    late = [arm for arm in (a, b) if arm.tokens is not None and arm.tokens.reached < len(arm.runs)]
    return f" ({', '.join(f'{arm.name} in {_arrived(arm)}' for arm in late)})" if late else ""


def _arrived(arm: ArmResult) -> str:
    assert arm.tokens is not None
    return f"{arm.tokens.reached} of {_runs(len(arm.runs))}"


def _reaches(comparison: Comparison, arm: ArmResult) -> str:
    assert arm.tokens is not None and arm.seconds is not None
    if not math.isfinite(arm.tokens.mean.value):
        return f"reaches {_level(comparison)} in {_arrived(arm)}"
    return (
        f"reaches {_level(comparison)} after {count(arm.tokens.mean.value)} {comparison.unit} ({duration(arm.seconds.mean.value)})"
        + _missing(arm, arm)
    )


def _level(comparison: Comparison) -> str:
    return " and ".join(f"{level:g}" for level in dict.fromkeys(comparison.thresholds))


def table(comparison: Comparison) -> str:
    """The verdict, tables of the arms and of the pairs, and the notes, in plain text."""
    name = short(comparison.metric)
    head = ["", "runs", f"final {name}"]
    rows = [[arm.name, str(len(arm.runs)), figure(arm.score)] for arm in comparison.arms]
    if any(arm.strength for arm in comparison.arms):
        head.append("strength")
        for row, arm in zip(rows, comparison.arms, strict=True):
            assert arm.strength is not None
            row.append(figure(arm.strength))
    if comparison.thresholds:
        head += [f"{comparison.unit} to {_level(comparison)}", f"seconds to {_level(comparison)}", "reached"]
        for row, arm in zip(rows, comparison.arms, strict=True):
            assert arm.tokens is not None and arm.seconds is not None
            row += [amount(arm.tokens.mean), amount(arm.seconds.mean), f"{arm.tokens.reached}/{len(arm.runs)}"]
    text = [*sentences(comparison), "", *_aligned([head, *rows])]
    if comparison.pairs:
        head = ["", "difference", "P(improvement)", "p"] + [comparison.unit, "p", "seconds"] * bool(
            comparison.thresholds
        )
        rows = []
        for pair in comparison.pairs:
            row = [f"{pair.a} - {pair.b}", figure(pair.difference), figure(pair.improvement), f"{pair.p:.3g}"]
            if comparison.thresholds:
                ratios = [figure(x, "x") if x else "-" for x in (pair.tokens, pair.seconds)]
                row += [ratios[0], f"{pair.tokens_p:.3g}", ratios[1]]
            rows.append(row)
        text += ["", *_aligned([head, *rows])]
    unlike = [
        f"{arm.name}: {', '.join(f'{k}={v}' for k, v in arm.settings.items())}"
        for arm in comparison.arms
        if arm.settings
    ]
    return "\n".join([*text, "", *_explained(comparison), *unlike, *(f"note: {note}" for note in comparison.notes)])


def _explained(comparison: Comparison) -> list[str]:
    lines = ["Interquartile means over seeds with 95 % stratified bootstrap intervals; p of permutation tests."]
    if any(arm.strength for arm in comparison.arms):
        lines.append("Strength: log-odds that one of its runs beats one of the mean group (Bradley-Terry).")
    if comparison.thresholds:
        over = f", mean of {comparison.window} steps," if comparison.window > 1 else ""
        lines.append(
            f"Threshold on {comparison.curve}{over} in {comparison.unit} generated and seconds of training; seconds compare only "
            "runs that had the machine to themselves."
        )
        if any(math.isfinite(horizon) for horizon in comparison.horizon):
            lines.append(
                f"Some runs ended without reaching it, the first after {count(min(comparison.horizon))} {comparison.unit}: runs that "
                "reach it later than that are counted as censored too."
            )
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def amount(mean: Estimate) -> str:
    """``172k [139k, 210k]``."""
    if not math.isfinite(mean.value):
        return "censored"
    return count(mean.value) + (
        "" if mean.low is None or mean.high is None else f" [{count(mean.low)}, {count(mean.high)}]"
    )


def figure(estimate: Estimate, unit: str = "") -> str:
    """``0.62x [0.51, 0.74]``."""
    ends = [estimate.value] + [end for end in (estimate.low, estimate.high) if end is not None]
    largest = max((abs(x) for x in ends if math.isfinite(x)), default=0.0)
    digits = next(digits for digits, least in ((0, 100.0), (1, 10.0), (2, 0.1), (3, 0.0)) if largest >= least)
    shown = ["∞" if x == math.inf else "-∞" if x == -math.inf else f"{x:.{digits}f}" for x in ends]
    return shown[0] + unit + (f" [{shown[1]}, {shown[2]}]" if len(shown) == 3 else "")


def count(value: float) -> str:
    """``12.3k``."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size and math.isfinite(value):
            return f"{value / size:.3g}{letter}"
    return "∞" if math.isinf(value) else f"{value:.3g}"


def short(metric: str) -> str:
    return metric.removeprefix("eval/")


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"
