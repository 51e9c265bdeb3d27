"""gimbal compare: compare runs over their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HELP = """\
gimbal compare RUNS [RUNS ...] [NAME=RUNS ...]

RUNS is a run, a directory of runs, or a pattern ('runs/demo-s*'). Runs of the same recipe form one group; their seeds are the
repetitions. NAME=RUNS makes a group of that name; it may include several kinds of tasks, with the same number of runs for each.

  --metric NAME      an evaluation metric (pass@1, greedy, score; default: pass@1 or score) or a training metric
  --threshold X      count tokens (or env steps, denoising steps) and seconds up to this value
                     (default: the highest that every run reaches)
  --json FILE        write all figures as JSON
  --figure FILE.svg  write curves, profiles, scores and times as one figure
  --runs DIRECTORY   look up names and patterns there too, instead of in runs"""


def compare(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse

    arguments = parse(argv, ("help",), ("metric", "threshold", "json", "figure", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    from gimbal.report.arms import arms
    from gimbal.report.compare import compare as compared
    from gimbal.runtime.directories import RUNS, named_runs

    threshold = arguments.flags.get("threshold")
    try:
        level = None if threshold is None else float(threshold)
    except ValueError as error:
        raise ValueError(f"--threshold is {threshold}; it must be a number, such as 0.9") from error
    for flag in ("json", "figure"):
        if (file := arguments.flags.get(flag)) and not Path(file).absolute().parent.is_dir():
            raise ValueError(f"there is no directory for --{flag} {file}")
    targets = {"": list(arguments.words)} if arguments.words else {}
    given = named_runs({**targets, **arguments.overrides}, Path(arguments.flags.get("runs", RUNS)))
    found = compared(arms(given), metric=arguments.flags.get("metric"), threshold=level)
    print(found)
    if file := arguments.flags.get("json"):
        found.save(file)
    if file := arguments.flags.get("figure"):
        found.draw(file)
    return 0
