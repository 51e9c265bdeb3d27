"""What a person sees while a run goes on: a live panel on a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from gimbal.records import Rollout, rollout_score
from gimbal.report.files import Summary

BARS = "▁▂▃▄▅▆▇█"
# What the panel and the lines show, in order: metric, heading, format.
SHOWN = (
    ("reward/mean", "reward", "{:.3f}"),
    ("pass_rate", "pass", "{:.3f}"),
    ("entropy/mean", "entropy", "{:.3f}"),
    ("mismatch/prob_diff", "|p-p'|", "{:.4f}"),
    ("staleness/max", "age", "{:.0f}"),
    ("length/mean", "length", "{:.1f}"),
    ("grad_norm", "grad", "{:.2f}"),
    ("perf/tokens_per_s", "tok/s", "{:.0f}"),
)


class Console:
    """``step`` after every learner step, ``note`` and ``sample`` now and then, ``verdict`` at the end, ``close`` always."""

    def __init__(self, total_steps: int, title: str) -> None:
        self.total, self.title = total_steps, title
        self.started = time.monotonic()
        self.first = 0.0  # step at which this sitting began
        self.rewards: deque[float] = deque(maxlen=40)
        self.sampled = ""
        self.live: Any = None
        if sys.stdout.isatty():
            from rich.live import Live

            self.live = Live(refresh_per_second=4)
            self.live.start()

    def note(self, text: str) -> None:
        if self.live is None:
            print(text, flush=True)
        else:
            self.live.console.print(text, markup=False, highlight=False)

    def step(self, metrics: Mapping[str, float]) -> None:
        step = metrics["step"]
        self.first = self.first or step - 1
        self.rewards.append(metrics.get("reward/mean", 0.0))
        figures = [(head, form.format(metrics[name])) for name, head, form in SHOWN if name in metrics]
        elapsed = time.monotonic() - self.started
        left = elapsed / max(1.0, step - self.first) * (self.total - step)
        if self.live is None:
            line = "  ".join(f"{head} {figure}" for head, figure in figures)
            print(f"step {step:.0f}/{self.total}  {line}  left {left:.0f} s", flush=True)
        else:
            self.live.update(self._panel(step, figures, left))

    def sample(self, rollout: Rollout) -> None:
        """A rollout as it was written, with what it earned."""
        prompt, text = rollout.task.prompt.strip(), rollout.text.strip()
        if not text:
            return
        shown = f"{prompt[-100:]} -> {text[:200]}  [{rollout_score(rollout):g}]"
        if self.live is None:
            print(f"  e.g. {shown}", flush=True)
        else:
            self.sampled = shown

    def verdict(self, summary: Summary) -> None:
        for line in verdict(summary):
            self.note(line)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()

    def _panel(self, step: float, figures: list[tuple[str, str]], left: float) -> Any:
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for _ in figures:
            table.add_column(justify="right")
        table.add_row(*(Text(head, style="dim") for head, _ in figures))
        table.add_row(*(Text(figure, style="bold") for _, figure in figures))
        rows = Table.grid()
        rows.add_row(ProgressBar(total=self.total, completed=step))
        rows.add_row(Text(f"step {step:.0f} of {self.total}, {left:.0f} s left    reward {spark(self.rewards)}"))
        rows.add_row(table)
        if self.sampled:
            rows.add_row(Text(self.sampled, style="dim"))
        return Panel(rows, title=Text(self.title))


def spark(values: deque[float]) -> str:
    """A line of bars between the smallest and the largest value."""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[int((value - low) * scale)] for value in values)


def verdict(summary: Summary) -> list[str]:
    """What was learned, how stable it was, and what it cost, in a few lines."""
    lines = []
    names = {"eval/pass@1": "held-out pass@1 (sampled)", "eval/greedy": "held-out accuracy (greedy)"}
    if "eval/pass@1" not in summary.after:
        names = {"eval/score": "held-out return (sampled)", "eval/greedy_score": "held-out return (greedy)"}
    for key, name in names.items():
        if key in summary.before and key in summary.after:
            before, after = summary.before[key], summary.after[key]
            lines.append(f"{name:28s} {before:.3f} -> {after:.3f}")
    lines.append(
        f"{summary.steps} steps, {summary.tokens_generated:,} decisions generated in {summary.seconds_training:.0f} s of training; "
        f"largest age {summary.max_age}, mean |p - p'| between sampler and trainer {summary.mean_discrepancy:.4f}, "
        f"peak memory {summary.peak_memory_mb:.0f} MB"
    )
    return lines
