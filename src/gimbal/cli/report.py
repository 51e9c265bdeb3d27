"""gimbal report: write a page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HELP = """\
gimbal report RUN [RUN ...] [--film] [--serve]

RUN is a run, a directory of runs, or a pattern such as 'demo-*'. Writes one page about these runs: what was learned, how stable it
was, what it cost; curves; rollouts. It is one file that opens offline: RUN/report.html, or report.html next to the first of several
runs. Runs that differ only in their seed are drawn as one curve with a band.

  --film             play an episode of each run's policy and show it (environments of gymnasium; kept as RUN/film.webp)
  --out FILE         write to this file
  --serve            follow live runs at http://127.0.0.1:PORT; nothing is written
  --port N           the port (default 0: any free one)
  --runs DIRECTORY   look up run names there instead of in runs"""


def report(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse, port

    arguments = parse(argv, ("help", "serve", "film"), ("out", "port", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    if arguments.overrides:
        raise ValueError(f"gimbal report takes no key {next(iter(arguments.overrides))} (gimbal report --help)")
    if not arguments.words:
        raise ValueError("gimbal report needs at least one run: gimbal report RUN [RUN ...]")
    serving = "serve" in arguments.flags
    if wrong := [name for name in (("out",) if serving else ("port",)) if name in arguments.flags]:
        raise ValueError(f"--{wrong[0]} has no effect {'with' if serving else 'without'} --serve")
    from gimbal.runtime.directories import RUNS, find_runs

    runs = Path(arguments.flags.get("runs", RUNS))
    directories = list(dict.fromkeys(found for word in arguments.words for found in find_runs(word, runs)))
    if "film" in arguments.flags:
        for directory in directories:
            _film(directory)
    if serving:
        from gimbal.report.serve import serve

        serve(directories, port(arguments.flags.get("port", "0")))
        return 0
    from gimbal.report.page import write_report

    out = arguments.flags.get("out")
    print(write_report(*directories, path=None if out is None else Path(out)))
    return 0


def _film(directory: Path) -> None:
    """Of the policy that the run ended with, or has now."""
    from gimbal import config, durable
    from gimbal.report.files import FILM
    from gimbal.runtime.directories import weights
    from gimbal.runtime.film import film
    from gimbal.runtime.run import AbstractRun

    _, run = config.load(directory, AbstractRun)
    made = film(run, run.policy.at(weights(directory)).load(run.seed))
    with durable.named(directory / FILM):
        (directory / FILM).write_bytes(made)
