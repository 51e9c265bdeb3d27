"""The runs of a claim, several at a time, each recorded as it ends. What is recorded is not run again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Runs = list[dict[str, Any]]


def load(path: Path) -> Runs:
    return json.loads(path.read_text()) if path.exists() else []


def write(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in runs) + "\n]\n")
    partial.replace(path)


def asked(about: str | None, record: Path) -> argparse.Namespace:
    """The command line of a claim: where its record is, and how many runs go on at a time."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=record)
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, one thread each")
    return parser.parse_args()


def campaign(
    about: str | None,
    record: Path,
    left: Callable[[Runs], Iterable[Iterable[Any]]],
    measure: Callable[[Any], dict[str, Any]],
    told: Callable[[Mapping[str, Any]], str],
) -> None:
    """Measure the jobs that are ``left``, in parts of which each may go by the runs of those before."""
    words = asked(about, record)
    runs = load(words.record)
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        for jobs in left(runs):
            waiting = {pool.submit(measure, job) for job in jobs}
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    runs.append(found := future.result())
                    print(told(found), flush=True)
                write(runs, words.record)


def ends(
    before: Mapping[str, float], after: Mapping[str, float], figures: Mapping[str, str], digits: int = 4
) -> dict[str, float]:
    """What is recorded of two evaluations: ``NAME_before`` and ``NAME_after`` of each figure, by the name of its metric."""
    both = (("before", before), ("after", after))
    return {f"{name}_{when}": round(found[key], digits) for when, found in both for name, key in figures.items()}
