"""A run's console output: a live panel on a terminal, one line per step elsewhere."""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from gimbal.config.own import visible
from gimbal.policies.base import Family
from gimbal.policies.token import TEXT
from gimbal.records import Rollout
from gimbal.report.files import Summary, cost, duration
from gimbal.report.held_out import figures, measures, solving
from gimbal.report.loop import event

BARS = "▁▂▃▄▅▆▇█"
# Contents of the panel and the lines, in order: metric, heading, format.
SCORED = (("reward/mean", "reward", "{:.3f}"), ("pass_rate", "pass rate", "{:.3f}"))
# In place of the reward of rollouts that are segments: what whole episodes earned, in a step in which one ended.
ENDED = (("reward/return/mean", "return", "{:.3f}"),)
# For recorded answers, in place of the reward.
WRITTEN = (("loss", "loss", "{:.3f}"), ("pair/accuracy", "accuracy", "{:.3f}"))
TEACHER = "distillation/kl"  # shown of a run that a teacher grades; without a reward it has no other figure
UNSCORED = ("loss", "loss", "{:.3g}")
SHOWN = (
    ("matching/apart", "apart from the teacher", "{:.3f}"),  # its samples, from what the teacher makes of them
    (TEACHER, "KL to the teacher", "{:.3f}"),
    ("cost/step", "cost a step", "{:.3f}"),  # of environments whose costs have a price
    ("entropy/mean", "entropy", "{:.3f}"),
    ("mismatch/prob_diff", "mismatch", "{:.4f}"),
    ("staleness/max", "staleness", "{:.0f}"),
    ("length/mean", "length", "{:.1f}"),
    ("grad_norm", "grad norm", "{:.2f}"),
    ("loop/factor", "lr x", "{:.3g}"),  # with the closed loop: its factor on the learning rate
)


class Console:
    """``before`` the first step, ``step`` after each, ``note`` and ``sample`` at times, ``verdict`` at the end, ``close`` always.

    ``recorded``: the run trains on written answers, so it shows the loss, not the reward, which would score another author's text.
    ``segments``: its rollouts are segments of episodes, so it shows the return of the episodes that ended, not of segments.
    ``paid``: some reward has a weight; else their sum is always 0, and it shows what they measure.
    """

    def __init__(
        self,
        total_steps: int,
        title: str,
        family: Family = TEXT,
        *,
        recorded: bool = False,
        segments: bool = False,
        paid: bool = True,
    ) -> None:
        self.total, self.title = total_steps, title
        self.unit, self.recorded = family.unit.replace("_", " "), recorded
        self.rate = f"perf/{family.unit}_per_s"
        unit = "tok" if family == TEXT else self.unit
        self.shown = (
            *(WRITTEN if recorded else ENDED if segments else SCORED if paid else SCORED[1:]),
            *SHOWN,
            (self.rate, f"{unit}/s", "{:.0f}"),
        )
        self.followed = self.shown[0][0]  # shown as a bar curve
        self.paid = paid or recorded
        self.earned = "loss" if recorded else family.earns if paid else "pass rate"
        self.rated = False  # whether a step has had a rate
        self.passed = False  # whether an answer has reached 1
        self.seconds: deque[float] = deque(maxlen=20)  # of the newest steps, to estimate the time left
        self.curve: deque[float] = deque(maxlen=40)
        self.sampled = ""
        self.live: Any = None
        if sys.stdout.isatty():
            from rich.live import Live

            self.live = Live(refresh_per_second=4)
            self.live.start()

    def _print(self, text: str) -> None:
        """Print if anyone still reads (``| head``, a dead ``tee``); otherwise the run continues, and its files have everything."""
        text = visible(text)
        try:
            print(text, flush=True)
        except UnicodeEncodeError:  # from a tool or a task, or on a terminal with a small character set
            code = sys.stdout.encoding
            print(text.encode(code, "backslashreplace").decode(code), flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def note(self, text: str) -> None:
        if self.live is None:
            self._print(text)
        else:
            self.live.console.print(visible(text), markup=False, highlight=False)

    def tell(self, sentence: str) -> None:
        """A sentence about the run, with the prefix of those on stderr."""
        self.note(f"gimbal: {sentence}")

    def alarm(self, text: str) -> None:
        """A message that must not be missed: red where colour is supported."""
        if self.live is None:
            self._print(text)
        else:
            self.live.console.print(visible(text), markup=False, highlight=False, style="bold red")

    def step(self, metrics: Mapping[str, float]) -> None:
        step = metrics["step"]
        shown = self.shown
        if not self.paid and (found := measures(metrics, "reward/")):
            shown = (*((key, name, "{:.3f}") for key, name in found.items()), *shown)
            if self.followed not in metrics:  # no reward decides what is solved
                self.followed, self.earned = next(iter(found.items()))
        elif not self.paid and "pass_rate" not in metrics:  # nothing scores: what the update reports
            shown, self.followed, self.earned = (UNSCORED, *shown), *UNSCORED[:2]
        # What controllers move, by its name: a price beside the cost that it is to lower.
        moved = (key for key in metrics if key.startswith("control/"))
        shown = (*shown[:-1], *((key, key.rpartition(".")[2].replace("_", " "), "{:.3g}") for key in moved), shown[-1])
        self.rated = self.rated or bool(metrics.get(self.rate))
        self.curve.append(metrics.get(self.followed, math.nan))
        self.seconds.append(metrics.get("time/step", 0.0))
        left = sum(self.seconds) / len(self.seconds) * (self.total - step)
        self.passed = self.passed or any(value for name, value in metrics.items() if solving(name))
        graded = self.paid and bool(metrics.get("reward/mean")) and not self.passed
        unscored = TEACHER in metrics and not any(name.startswith("reward/error") for name in metrics)
        figures = [
            (
                self.earned if name == self.followed else head,
                "-" if name == self.rate and not metrics[name] else form.format(metrics[name]),
            )
            for name, head, form in shown
            # A step that generated nothing, because its batch already existed, keeps its column: 0 would read as an engine that stands
            # still. A run that generates nothing has no rate.
            if name in metrics
            and (self.rated or name != self.rate)
            and not (unscored and (name, head, form) in SCORED)
            and not (graded and name == "pass_rate")
        ]
        if self.live is None:
            line = "  ".join(f"{head} {figure}" for head, figure in figures)
            self._print(f"step {step:.0f}/{self.total}  {line}  left {duration(left)}")
        else:
            self.live.update(self._panel(step, figures, left))
        if sentence := event(int(step), metrics):
            self.note(sentence)

    def sample(self, rollout: Rollout) -> None:
        """A rollout's text with its score."""
        if not rollout.text.strip():
            return
        prompt, text = one_line(rollout.task.asked), one_line(rollout.text)
        earned = "" if self.recorded else f"  [{self.earned} {rollout.earned:g}]"
        shown = f"{prompt[-100:]} -> {text[:200]}{earned}"
        if self.live is None:
            self._print(f"  e.g. {shown}")
        else:
            self.sampled = shown

    def before(self, evaluation: Mapping[str, float]) -> None:
        """The evaluation before the first step, by the metrics of the verdict; the report has all its figures."""
        self.passed = any(value for name, value in evaluation.items() if solving(name))
        if told := [f"{name} {evaluation[key]:.3f}" for key, name in figures(evaluation, evaluation).items()][:2]:
            told = [told[0], *(name.removeprefix("held-out ") for name in told[1:])]
        if "eval/length" in evaluation:
            told.append(f"length {evaluation['eval/length']:.1f}")
        if not told and evaluation.get("eval/failed"):
            told = ["no held-out score, because every rollout failed"]
        if cut := evaluation.get("eval/truncated_frac"):
            told.append(f"{cut:.0%} cut off at max_length")
        self.note("before training: " + ", ".join(told))

    def verdict(self, summary: Summary) -> None:
        for line in verdict(summary, f"{self.unit} {'of recorded answers' if self.recorded else 'generated'}"):
            self.note(line)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()

    def _panel(self, step: float, figures: list[tuple[str, str]], left: float) -> Any:
        from rich.columns import Columns
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        pairs = [Text.assemble((head, "dim"), "\n", (figure, "bold"), justify="right") for head, figure in figures]
        rows = Table.grid()
        rows.add_row(ProgressBar(total=self.total, completed=step))
        rows.add_row(
            Text(f"step {step:.0f} of {self.total}, {duration(left)} left    {self.earned} {spark(self.curve)}")
        )
        rows.add_row(Columns(pairs, padding=(0, 2)))  # as many columns as fit the terminal
        if self.sampled:
            rows.add_row(Text(self.sampled, style="dim"))
        return Panel(rows, title=Text(self.title))


def spark(values: Iterable[float]) -> str:
    """A line of bars between the smallest and the largest value; blank for values that are not finite."""
    values = list(values)
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[int((v - low) * scale)] if math.isfinite(v) else " " for v in values)


def one_line(text: str) -> str:
    """Model text made safe: it can neither break the line nor control the terminal."""
    return "".join(c if c.isprintable() else "·" for c in text.strip().replace("\n", "⏎"))


def verdict(summary: Summary, drawn: str = "decisions generated") -> list[str]:
    """What was learned, how stable it was, and what it cost, in a few lines."""
    lines = []
    for key, name in figures(summary.before, summary.after).items():
        before, after = summary.before[key], summary.after[key]
        lines.append(f"{name:28s} {before:.3f} -> {after:.3f}  ({after - before:+.3f})")
    for when, evaluation in (("before", summary.before), ("after", summary.after)):
        if count := evaluation.get("eval/failed"):
            single = "eval/failed/"
            reasons = ", ".join(
                f"{n:.0f} {name[len(single) :]}" for name, n in evaluation.items() if name.startswith(single)
            )
            score = "" if "eval/score" in evaluation else ", so it has no score"
            lines.append(f"held-out rollouts that failed {when} training: {count:.0f} ({reasons}){score}")
    return lines + cost(summary, drawn)
