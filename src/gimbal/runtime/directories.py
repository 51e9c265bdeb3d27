"""The life of a run's directory: created, found by name, locked while it is trained in, continued, discarded.

Nothing here imports torch before it needs the run itself, so that commands that read a run's files answer at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gimbal import config, durable
from gimbal.report import trackers
from gimbal.report.files import BEST, FILM, LAST, METRICS, ROLLOUTS, SCHEDULE, STOPPED, SUMMARY, JsonLines, Summary
from gimbal.runtime import checkpoint
from gimbal.waiting import tell

if TYPE_CHECKING:
    from gimbal.runtime.run import AbstractRun

RUNS = "runs"
READ = 1 << 24  # bytes that are read in a few milliseconds
SAME = ": the result is the same as for a run started with that many steps"
FILES = (METRICS, ROLLOUTS, SUMMARY, STOPPED, SCHEDULE, trackers.FILE, config.RECIPE_FILE, "report.html", FILM)


def create(run: AbstractRun, recipe: str, name: str | None, runs: Path) -> Path:
    """A directory with the resolved recipe: a new one or, if named, one with the same recipe in which no step was done. A run that
    has done a step is never overwritten.
    """
    stem = f"{stem_of(recipe)}-{run.seed}" if name is None else named(name)
    # Before the directory: a recipe that cannot be saved must not leave an empty one.
    text = config.dump(settled(run), recipe, str(Path.cwd()))
    count = 1
    while True:
        directory = runs / (stem if count == 1 else f"{stem}-{count}")
        if durable.make_directory(directory):
            break
        failed = (directory / STOPPED).is_file() and unbegun(directory) and holds(directory, run, text)
        if name or failed:
            free(directory, run, text)
            break
        count += 1
    try:
        config.save(text, directory / config.RECIPE_FILE)
    except OSError:  # a full disk
        discard(directory)
        raise
    return directory


def named(name: str) -> str:
    """A valid name for a run's directory."""
    if name in ("", "..") or Path(name).name != name:
        raise ValueError(
            f"--name is {name!r}; it must be a single directory name. To put the run elsewhere, add --runs DIRECTORY"
        )
    return name


def unbegun(directory: Path) -> bool:
    """Whether it has no finished step, no checkpoint and no process training in it: a run killed while loading, or that failed in
    its first step."""
    there = {path.name for path in directory.iterdir()}
    if SUMMARY in there or any(map(is_foreign, there)) or JsonLines(directory / METRICS).read():
        return False
    if (directory / "checkpoints").exists() and any((directory / "checkpoints").glob("step_*")):
        return False
    try:
        with alone(directory):
            return True
    except ValueError:  # it is being trained
        return False


def is_foreign(name: str) -> bool:
    """Whether it is the user's own file: a run without a finished step writes none of this name."""
    return name.removesuffix(".partial") not in {*FILES, "checkpoints", BEST, *trackers.KEPT}


def holds(directory: Path, run: AbstractRun, text: str) -> bool:
    """Whether it holds this recipe, wherever it was started, or is empty. Threads that the run leaves open were chosen by the
    machine."""

    def asked(text: str) -> str:
        text = re.sub(r"(?m)^directory: .*\n", "", text)
        return text if run.threads else re.sub(r"(?m)^  threads: \d+$", "", text)

    file = directory / config.RECIPE_FILE
    if not file.is_file():
        return not any(path for path in directory.iterdir() if path.name != f"{config.RECIPE_FILE}.partial")
    return asked(file.read_text(encoding="utf-8")) == asked(text)


def free(directory: Path, run: AbstractRun, text: str) -> None:
    """Refuse a directory with finished steps or with another recipe."""
    if not os.path.lexists(directory):
        return
    if not (directory / config.RECIPE_FILE).is_file() and not (directory.is_dir() and holds(directory, run, text)):
        raise ValueError(f"{directory} already exists and is not a run; choose another name, or move it away")
    if not unbegun(directory):
        raise ValueError(
            f"{directory} already exists; choose another name, continue that run (--resume {directory}), "
            f"or start a new one with its recipe (--from {directory})"
        )
    if not holds(directory, run, text):
        raise ValueError(
            f"{directory} already exists with another recipe and no finished step; choose another name, or remove it: "
            f"rm -r {shlex.quote(str(directory))}"
        )


def settled(run: AbstractRun, share: int = 1) -> AbstractRun:
    """The run with machine-dependent choices fixed, so that its results do not depend on where it is resumed or restarted."""
    from gimbal.runtime import device

    return replace(run, threads=run.threads or device.chosen(share))


def stem_of(recipe: str) -> str:
    """The base name of a run's directory: the recipe's name, or its file's."""
    return Path(recipe).stem if recipe.endswith((".yaml", ".yml", ".json")) else recipe.rpartition(":")[2]


def to_resume(directory: Path, steps: Any) -> tuple[str, AbstractRun]:
    """(name of the recipe, the run) of a directory; ``steps`` sets a new total, which ``launch`` saves once nothing can be refused."""
    from gimbal.runtime.run import AbstractRun

    recipe, run = config.load(directory, AbstractRun)
    if steps is None:
        return recipe, run
    longer = config.override(run, {"steps": steps})
    done = len(JsonLines(directory / METRICS).read())
    if longer.steps <= done:
        raise ValueError(f"{directory} has already done {done} steps; steps is the total, so it must be above {done}")
    return recipe, longer


def lengthen(run: AbstractRun, directory: Path, recipe: str) -> None:
    """Save a new total of steps in the recipe of a run that is resumed."""
    file = directory / config.RECIPE_FILE
    saved = config.read_file(file)
    if config.run_of(file, saved).get("steps") != run.steps:
        config.save(config.dump(run, recipe, str(saved.get("directory", ""))), file)


def check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK):
        copy = f"cp -r {shlex.quote(str(directory))} COPY && chmod -R u+w COPY"
        raise ValueError(
            f"{directory} cannot be written to; make it writable, or copy it and resume the copy: {copy} && gimbal train --resume COPY"
        )


def finished(run: AbstractRun, directory: Path) -> Summary | None:
    """The summary of a run that has done all its steps."""
    if not (directory / SUMMARY).is_file() or not (directory / LAST).is_dir():
        return None
    summary = Summary.load(directory / SUMMARY)
    return summary if summary.steps >= run.steps else None


def finished_steps(directory: Path) -> int:
    """How many steps a run has finished. One whose evaluation failed has a checkpoint and no row yet."""
    newest = checkpoint.newest(directory)
    return max(len(JsonLines(directory / METRICS).read()), checkpoint.step_of(newest) if newest else 0)


def discard(directory: Path) -> None:
    """Remove what a run without a finished step has written: there is nothing to continue from.

    If it has stopped.json, keep that, the recipe, and what a resumed run's trackers need. If somebody's own files are there, keep them
    and the recipe.
    """
    if finished_steps(directory):
        return
    there = {path.name for path in directory.iterdir()}
    kept = {STOPPED, config.RECIPE_FILE, trackers.FILE, trackers.IDENTITY} if STOPPED in there else set[str]()
    if own := {name for name in there if is_foreign(name)}:
        kept |= {config.RECIPE_FILE, *own}
    for path in (directory / name for name in there - kept):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if not kept and not directory.is_symlink():
        directory.rmdir()


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Refuse a second process that trains in this directory: they would overwrite each other's files.

    The lock is on the directory. Any file in it may be replaced during a run: a resume with steps=N rewrites recipe.yaml.
    """
    held = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"another process is training in {directory}; stop it first") from error
        yield
    finally:
        os.close(held)


def changed(run: AbstractRun, directory: Path) -> str:
    """How the run differs from the one that wrote its newest checkpoint, and what that means; "" if it does not."""
    from gimbal.learning.optimization import Optimization
    from gimbal.runtime.run import AbstractRun

    newest = checkpoint.newest_whole(directory, lambda passed: None, config.RECIPE_FILE)
    if newest is None or not (newest / config.RECIPE_FILE).is_file():
        return ""
    was, now = (
        {key: type(part).__name__ if is_dataclass(part) else part for key, part in config.paths(one).items()}
        for one in (config.load(newest, AbstractRun)[1], run)
    )
    apart = [key for key in sorted(was | now) if was.get(key) != now.get(key)]
    ends = [key for key in apart if not any(other.startswith(key + ".") for other in apart)]
    if not ends:
        return ""
    told = f"{directory} continues with {', '.join(f'{key} {was.get(key)} -> {now.get(key)}' for key in ends)}"
    if ends != ["steps"]:
        return told + ": it is no longer the same run, so do not compare it as one"
    if any(isinstance(part, Optimization) and part.decay != "constant" for part in config.paths(run).values()):
        return (
            told
            + ": the learning rate decays towards the last step, so this differs from a run started with that many steps"
        )
    return told + SAME


def find_run(run: str | Path, runs: Path = Path(RUNS)) -> Path:
    """The directory of a run, given by its path or its name under ``runs``; a damaged recipe.yaml is restored from a checkpoint."""
    for directory in (Path(run), runs / run):
        if (directory / config.RECIPE_FILE).is_file() or checkpoint.newest(directory) is not None:
            checkpoint.restore_recipe(directory, tell)
            return directory
    known = [path.parent.name for path in runs.glob(f"*/{config.RECIPE_FILE}")]
    raise ValueError(f"there is no run {run} (no {config.RECIPE_FILE} in it){config.nearest(str(run), known)}")


def progress(directory: Path) -> tuple[str, str]:
    """(how far an unfinished run has come, why it cannot go on), each "" where there is nothing to say. Quick: files of a checkpoint
    are compared with what was written up to ``READ`` bytes; of larger ones only that they are there."""
    if (directory / SUMMARY).is_file() or not (directory / config.RECIPE_FILE).is_file():
        return "", ""
    file = directory / config.RECIPE_FILE
    saved, done = config.run_of(file, config.read_file(file)), len(JsonLines(directory / METRICS).read())
    steps, passed = saved.get("steps"), list[str]()
    told = f"({done:,} of {steps:,} steps)" if isinstance(steps, int) else f"(after {done:,} steps)"
    try:
        with alone(directory):
            pass
    except ValueError:  # it is being trained, and writes and removes checkpoints
        return f"still running {told}", ""
    try:
        if checkpoint.resumable(directory, passed.append, READ) is None:
            checkpoint.nothing_lost(directory, saved.get("checkpoint_every", done))
    except ValueError as error:
        return f"unfinished {told}", str(error)
    way = f"gimbal train --resume {shlex.quote(str(directory))} goes on"
    return f"unfinished {told}; {'; '.join([*passed, way])}", ""


def find_runs(target: str | Path, runs: Path = Path(RUNS)) -> list[Path]:
    """The runs that a target names: a run, a directory of runs, or a pattern (``demo-*``) here or under ``runs``."""
    marked = any(mark in str(target) for mark in "*?[")
    if marked and not any((place / config.RECIPE_FILE).is_file() for place in (Path(target), runs / target)):
        found = [Path(path) for path in glob.glob(str(target)) or glob.glob(str(runs / target))]
    elif marked or (Path(target) / config.RECIPE_FILE).is_file() or not Path(target).is_dir():
        return [find_run(target, runs)]
    else:
        found = list(Path(target).iterdir())
    found = sorted(path for path in found if (path / config.RECIPE_FILE).is_file())
    if not found:
        raise ValueError(f"there is no run at {target} (no {config.RECIPE_FILE} in a directory there)")
    return found


def named_runs(
    targets: Sequence[str | Path] | Mapping[str, str | Path | Sequence[str | Path]], runs: Path
) -> list[tuple[str, list[Path]]]:
    """(name, runs) of each target of a comparison: one of a mapping has its name, any other "", so that its runs form groups."""
    given: list[tuple[str, list[Path]]] = []
    for name, value in targets.items() if isinstance(targets, Mapping) else [("", target) for target in targets]:
        several = [value] if isinstance(value, str | Path) else value
        given.append((name, [directory for one in several for directory in find_runs(one, runs)]))
    if not given:
        raise ValueError("there is nothing to compare: name runs, directories of runs, or patterns")
    return given


def weights(directory: Path) -> Path:
    """The newest saved model of a run; a damaged one is skipped with a message."""
    newest = checkpoint.newest_whole(directory, tell, "model/")
    if newest is None:
        raise ValueError(f"{directory} holds no checkpoint yet")
    return newest / "model"


def way_on(directory: Path) -> str:
    """How to continue a stopped run, as the end of a sentence."""
    if checkpoint.newest(directory) is None:
        return f"there is no checkpoint yet; to start again from step 1: {resuming(directory)}"
    return f"continue with: {resuming(directory)}"


def kept(directory: Path) -> str:
    """The message that a resumed run cannot be changed, and how to start a new one from it."""
    return (
        f"--resume cannot change a run, except for steps=N. Start a new one: gimbal train --from {directory} [key=value ...]"
        + (f", with model={model} to start from its trained weights" if (model := trained(directory)) else "")
    )


def trained(directory: Path) -> Path | None:
    """The path of a run's newest weights, unread; None if it has none yet."""
    newest = checkpoint.newest(directory)
    places = [directory] if (directory / SUMMARY).is_file() else [newest] if newest else []
    return next((place / "model" for place in places if (place / "model").is_dir()), None)


def resuming(directory: Path) -> str:
    """The command that resumes a run."""
    return f"gimbal train --resume {shlex.quote(str(directory))}"
