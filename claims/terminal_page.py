"""The section of claims/README.md on terminal.py; page.py writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import terminal

Runs = Sequence[Mapping[str, Any]]
LOW, HIGH, SECONDS = 0.4, 0.8, 180.0


def section(runs: Runs) -> str:
    lines = [
        "## An agent in a terminal (`terminal.py`)",
        "",
        "\n\n".join((terminal.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {sum(terminal.ARMS.values())} runs are recorded.",
        "",
        "| run | seed | before | after | after, blind | seconds | of the processor | load | tool seconds | calls an episode "
        "| that fail |",
        "| --- " * 11 + "|",
    ]
    for run in sorted(runs, key=lambda run: (list(terminal.ARMS).index(run["arm"]), run["seed"])):
        blind = "" if run["blind"] is None else f"{run['blind']:.3f}"
        figures = (
            f"{run['before']:.3f} | {run['after']:.3f} | {blind} | {run['seconds']:.0f} | {run['cpu']:.0f} | {run['load']:.0f} | "
            f"{run['tool']:.0f} | {run['calls']:.2f} | {run['failed']:.3f}"
        )
        lines.append(f"| {run['arm']} | {run['seed']} | {figures} |")
    return "\n".join([*lines, "", verdict(runs), ""])


def verdict(runs: Runs) -> str:
    whole = [run for run in runs if run["arm"] == "terminal"]
    learned = sum(run["before"] < LOW and run["after"] > HIGH for run in whole)
    soon = sum(run["seconds"] < SECONDS for run in whole)
    unseen = [run["blind"] for run in whole] + [run["after"] for run in runs if run["arm"] != "terminal"]
    reached = learned == soon == terminal.ARMS["terminal"]
    return (
        f"Verdict: success rises from below {LOW} to above {HIGH} in {learned} of {len(whole)} seeds, in less than {SECONDS:.0f} s "
        f"on the wall in {soon} and of the processor in {sum(run['cpu'] < SECONDS for run in whole)}: "
        f"{'reached' if reached else 'as the rule has it, not reached'}. The tool is "
        f"{'needed' if max(unseen) < LOW else 'not shown to be needed'}: without its answers success is at most {max(unseen):.3f}."
    )
