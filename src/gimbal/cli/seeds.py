"""gimbal train --seeds: one recipe over several seeds, each an ordinary run in its own process."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gimbal import hangup
from gimbal.waiting import tell

if TYPE_CHECKING:
    from gimbal.runtime.run import AbstractRun


def numbers(text: str) -> list[int]:
    """``5`` means seeds 0 to 4; ``3,8`` means these two; ``7,`` means one."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() for word in words):
        raise ValueError(
            f"--seeds is {text}; it must be a number of seeds, such as 5, or the seeds themselves, such as 3,8"
        )
    found = [int(word) for word in words] if "," in text else list(range(int(text)))
    if not found or len(set(found)) < len(found):
        raise ValueError(f"--seeds {text} names {'no seed' if not found else 'a seed twice'}")
    return found


def at_once(text: str) -> int:
    """``--jobs``: each run needs its own core."""
    cores = len(os.sched_getaffinity(0))
    if not text.isdecimal() or not 1 <= int(text) <= cores:
        raise ValueError(f"--jobs is {text}; it must be a number of runs from 1 to {cores}: each needs its own core")
    return int(text)


def check_several(run: AbstractRun, seeds: Sequence[int]) -> None:
    """Refuse more runs than one where all would keep something in the same place."""
    if len(seeds) > 1 and (alone := run.store.sole()):
        raise ValueError(f"--seeds trains {len(seeds)} runs, and {alone}")


def train_seeds(
    run: AbstractRun,
    recipe: str,
    stem: str,
    runs: Path,
    seeds: Sequence[int],
    jobs: int,
    rest: Sequence[str],
    notices: Sequence[str],
) -> int:
    """Train ``runs``/``stem``-sN for each seed, ``jobs`` at a time, each on its own cores. Exit code 2 if any failed.

    Runs that the same command finished earlier are left as they are, and unfinished ones continue, so giving the command again
    repairs a broken series. ``rest`` goes to each run's command line; ``notices`` are printed once nothing can be refused any more.
    """
    from gimbal import api, recipes
    from gimbal.runtime import compose, directories

    cores = sorted(os.sched_getaffinity(0))
    check_several(run, seeds)
    compose.accepted(run)  # a refusal appears once
    compose.rehearse(run)
    advice = [*notices, *recipes.warnings(run, recipe)]
    places = prepared(run, recipe, stem, runs, seeds, jobs)
    for sentence in advice:
        tell(sentence)
    missing = [directory for directory in places if not (directory / "summary.json").is_file()]
    if len(missing) < len(places):
        tell(
            f"{len(places) - len(missing)} of {len(places)} runs are already finished "
            "(give another --name to train them again)"
        )
    series = Series(missing, jobs, cores if jobs > 1 else [], rest)
    series.run()
    ended = [directory for directory in places if (directory / "summary.json").is_file()]
    if ended:
        print(api.compare(ended).verdict, flush=True)
    if series.stopped and len(ended) < len(places):
        tell("stopped; give the same command again to continue")
        return 130
    if series.failed:
        for name in series.failed:
            # Another process may be training there, or have removed it.
            with suppress(ValueError, FileNotFoundError), directories.alone(runs / name):
                directories.discard(runs / name)  # unless it has taken a step
        named = ", ".join(f"{name} (exit code {code})" for name, code in series.failed.items())
        raise ValueError(
            f"{len(series.failed)} of {len(seeds)} runs failed: {named}; give the same command again to continue with them"
        )
    return 0


def prepared(run: AbstractRun, recipe: str, stem: str, runs: Path, seeds: Sequence[int], jobs: int = 1) -> list[Path]:
    """A directory with the recipe for each seed. An existing one must hold the same recipe; otherwise nothing is created.

    If the recipe leaves ``threads`` open, the number set when the directory was created stays, even with other ``jobs``.
    """
    from gimbal import config
    from gimbal.runtime import directories

    texts = {seed: config.dump(replace(run, seed=seed), recipe) for seed in seeds}
    for seed, text in texts.items():
        directory = runs / f"{stem}-s{seed}"
        if directory.exists() and not (directory.is_dir() and directories.holds(directory, run, text)):
            raise ValueError(f"{directory} already exists with another recipe; choose another name with --name")
    for seed in seeds:
        if not (runs / f"{stem}-s{seed}" / config.RECIPE_FILE).is_file():
            directories.create(directories.settled(replace(run, seed=seed), jobs), recipe, f"{stem}-s{seed}", runs)
    return [runs / f"{stem}-s{seed}" for seed in seeds]


@dataclass
class Series:
    """Waiting, running and failed runs. Ctrl-C reaches every run once, and each stops at a checkpoint; a second one kills them."""

    waiting: Sequence[Path]
    jobs: int
    cores: Sequence[int]  # divided among the jobs; empty: no pinning
    rest: Sequence[str]
    failed: dict[str, int] = field(default_factory=dict)
    stopped: bool = False
    running: set[subprocess.Popen[str]] = field(default_factory=set)

    def run(self) -> None:
        todo: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for directory in self.waiting:
            todo.put(directory)
        workers = [threading.Thread(target=self._work, args=(todo, job)) for job in range(self.jobs)]
        numbers = (signal.SIGINT, signal.SIGTERM, *hangup.heard())
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _work(self, todo: queue.SimpleQueue[Path], job: int) -> None:
        while not self.stopped:
            try:
                directory = todo.get_nowait()
            except queue.Empty:
                return
            code = self._train(directory, job)
            if code and not self.stopped:
                self.failed[directory.name] = code

    def _train(self, directory: Path, job: int) -> int:
        """A run's exit code. A single run has the terminal; with several, each line starts with the run's name."""
        several = self.jobs > 1
        process = subprocess.Popen(
            [sys.executable, "-m", "gimbal", "train", "--resume", str(directory), *self.rest],
            stdout=subprocess.PIPE if several else None,
            stderr=subprocess.STDOUT if several else None,
            text=True,
            stdin=subprocess.DEVNULL,
            process_group=0,  # we receive the terminal's Ctrl-C and forward it once to each run
        )
        self.running.add(process)
        if self.cores:
            os.sched_setaffinity(process.pid, self.cores[job :: self.jobs])
        if self.stopped:
            process.send_signal(signal.SIGINT)
        for line in process.stdout or ():
            print(f"{directory.name} | {line}", end="", flush=True)
        code = process.wait()
        self.running.discard(process)
        return code

    def _stop(self, number: int, frame: object) -> None:
        self.stopped = True
        if number == signal.SIGHUP:  # the terminal, which a single run writes to as well
            hangup.mute()
        for process in list(self.running):
            process.send_signal(signal.SIGHUP if number == signal.SIGHUP else signal.SIGINT)
