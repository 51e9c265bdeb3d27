"""gimbal compare: runs against runs, over their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HELP = """\
gimbal compare RUNS [RUNS ...] [NAME=RUNS ...]

RUNS is a run, a directory of runs, or a pattern ('runs/demo-s*'). Runs are grouped by recipe, their seeds being repetitions; runs
given as NAME=RUNS are one side of that name, which may hold several kinds of tasks if each was trained on equally often.

  --metric NAME      a figure of the evaluation (pass@1, greedy, score), by default pass@1 or score; or a metric of the steps
  --threshold X      count tokens and seconds to this level; by default the highest that every run reaches
  --json FILE        all figures
  --figure FILE.svg  curves, profiles, scores and times as one picture
  --runs DIRECTORY   where names and patterns are looked up too, other than runs"""


def compare(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse

    arguments = parse(argv, ("help",), ("metric", "threshold", "json", "figure", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    from gimbal import api

    threshold = arguments.flag("threshold")
    try:
        level = None if threshold is None else float(threshold)
    except ValueError as error:
        raise ValueError(f"--threshold is {threshold}; it is a number, such as 0.9") from error
    for flag in ("json", "figure"):
        if (file := arguments.flag(flag)) and not Path(file).absolute().parent.is_dir():
            raise ValueError(f"there is no directory for --{flag} {file}")
    targets = {"": list(arguments.words)} if arguments.words else {}
    found = api.compare(
        {**targets, **arguments.overrides},
        metric=arguments.flag("metric"),
        threshold=level,
        runs=arguments.flags.get("runs", api.RUNS),
    )
    print(found)
    if file := arguments.flag("json"):
        found.save(file)
    if file := arguments.flag("figure"):
        found.draw(file)
    return 0
