"""The Python interface: ``gimbal.train(...)`` and what it shares with the command line."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

from gimbal import config, durable, recipes
from gimbal.config.own import OwnError, fault
from gimbal.environments.tables import Rewritten
from gimbal.learning.base import OfPolicy
from gimbal.learning.optimization import Optimization
from gimbal.learning.ranks import rank, several
from gimbal.policies.base import AbstractPolicy
from gimbal.recipes.shipped import is_model, of_model
from gimbal.report import trackers
from gimbal.report.comparison import Comparison
from gimbal.report.files import FILM, METRICS, ROLLOUTS, STOPPED, SUMMARY, JsonLines, Summary
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import checkpoint, device, policies
from gimbal.runtime.best import BEST
from gimbal.runtime.evaluate import EvalResult, evaluate_held_out
from gimbal.runtime.run import AbstractRun
from gimbal.runtime.schedule import FILE as SCHEDULE
from gimbal.runtime.statement import counted, statement

RUNS = "runs"
SAME = ": the result is the same as for a run started with that many steps"
FILES = (METRICS, ROLLOUTS, SUMMARY, STOPPED, SCHEDULE, trackers.FILE, config.RECIPE_FILE, "report.html", FILM)


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run's results: its directory, its resolved recipe, and the figures of summary.json."""

    directory: Path
    run: AbstractRun
    summary: Summary

    def policy(self) -> AbstractPolicy:
        """The trained policy, from the newest checkpoint."""
        return self.run.policy.at(weights(self.directory)).load(self.run.seed)


def train(
    recipe: str | None = None,
    *,
    name: str | None = None,
    resume: str | Path | None = None,
    runs: str | Path = RUNS,
    track: str | Sequence[str] | None = None,
    **overrides: Any,
) -> Result:
    """Train a recipe (a name, ``path/file.py:function``, or a YAML file) and return its results.

    The default recipe is ``stable`` if a model, tasks or a reward are given, otherwise ``demo``.

    ``overrides`` are the keys of the command line: ``steps=100``, ``learning_rate=1e-4``, ``objective__clip_high=0.3`` or
    ``objective={"clip_high": 0.3}`` for a field, ``objective=SequenceRatio()`` for a part. ``model`` is a directory, ``reward`` a
    function (or several, or gimbal's rewards), ``tasks`` a file, a directory or the name of a Hub dataset (several with weights as
    ``{"a.jsonl": 0.7, "b.csv": 0.3}``), a list of dicts, a dict of columns, a ``datasets.Dataset``, or gimbal's tasks. ``track`` names
    trackers: tensorboard, wandb, trackio; a resumed run keeps its trackers unless ``track`` names others or ``"none"``.
    """
    config.refuse_while_loading()
    tracked = trackers.asked(track)
    notices: list[str] = []
    directory = None if resume is None else find_run(resume, Path(runs))
    if directory is not None:
        if set(overrides) - {"steps"} or name:
            raise ValueError(kept(directory))
        recipe, run = to_resume(directory, overrides.get("steps"))
    else:
        keys = config.flatten(overrides)
        recipe = recipe or recipes.default(keys)
        run = recipes.load(recipe, keys, notices.append)
    if rank() > 0:  # under torchrun, code after this call is for rank 0 only
        from gimbal.runtime.local import follow

        follow(run)
        raise SystemExit(0)
    if directory is None:
        directory = create(run, recipe, name, Path(runs))
    return launch(run, directory, recipe, resume=resume is not None, track=tracked, notices=notices)


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
    return replace(run, threads=run.threads or device.chosen(share))


def stem_of(recipe: str) -> str:
    """The base name of a run's directory: the recipe's name, or its file's."""
    return Path(recipe).stem if recipe.endswith((".yaml", ".yml", ".json")) else recipe.rpartition(":")[2]


def launch(
    run: AbstractRun,
    directory: Path,
    recipe: str,
    *,
    resume: bool = False,
    track: Sequence[str] | None = None,
    notices: Sequence[str] = (),
    header: bool = False,
) -> Result:
    """Train in this directory. A new run that is refused before its first step leaves nothing behind. One that fails in its first
    step keeps recipe and stopped.json for the doctor, and the same command reuses the directory.

    ``notices``, advice and (with ``header``) a description of the run are printed once it has begun, so a refusal is one sentence.
    """
    under_way: list[bool] = []
    with alone(directory):
        for name in FILES:
            durable.regular(directory / name)
        try:
            from gimbal.runtime.local import run_local  # late: only a run needs the console

            # All ranks must make the same calls: the others have joined and would wait for this one forever.
            if resume and not several() and (done := finished(run, directory)) is not None:
                longer = f"{resuming(directory)} steps={2 * run.steps}"
                recipes.tell(f"{directory} is finished ({counted(done.steps, 'step')}). To train longer: {longer}")
                return Result(directory=directory, run=run, summary=done)
            if resume:
                check_writable(directory)
            asked, run = run, settled(run)
            advice = [*notices, *(filter(None, [changed(run, directory)]) if resume else recipes.warnings(run, recipe))]
            anew = resume and checkpoint.newest(directory) is None

            def begun(edited: bool) -> None:
                under_way.append(True)
                if resume:
                    lengthen(asked, directory, recipe)
                if header:
                    print(f"{directory}{', from step 1 (it has no checkpoint)' * anew}: {statement(run)}", flush=True)
                for sentence in advice:
                    recipes.tell(sentence.removesuffix(SAME) if edited else sentence)

            if not resume:  # of an earlier run that failed or was killed here
                trackers.forget(directory)
            tracked = trackers.of_run(directory, () if track is None and not resume else track)
            summary = run_local(run, directory, resume=resume, name=recipe, track=tracked, begun=begun)
            return Result(directory=directory, run=run, summary=summary)
        except BaseException as error:
            told = fault(error, {type(part).__name__: key for key, part in config.paths(run).items()})
            steps = finished_steps(directory)
            if not resume:
                discard(directory)
            if isinstance(error, OSError) and steps and (way := durable.remedy(error)):
                raise ValueError(f"{way}. Then continue with: {resuming(directory)}") from error
            if told:
                when = f"after step {steps}" if steps else "in the first step" if under_way else "before the first step"
                # Before what it must do: "return the Group in the first step" would be another demand.
                said = told.replace("; it must", f" {when}; it must", 1) if "; it must" in told else f"{told}, {when}"
                raise OwnError(said) from error
            if isinstance(error, RewardError | Rewritten) and under_way and not steps and not resume:
                raise type(error)(f"{error}. No step was finished: fix it, then give the same command again") from error
            raise


def to_resume(directory: Path, steps: Any = None) -> tuple[str, AbstractRun]:
    """(name of the recipe, the run) of a directory; ``steps`` sets a new total, which ``launch`` saves once nothing can be refused."""
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
    if config.load(directory, AbstractRun)[1].steps != run.steps:
        began = str(config.read_file(directory / config.RECIPE_FILE).get("directory", ""))
        config.save(config.dump(run, recipe, began), directory / config.RECIPE_FILE)


def check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK):
        copy = f"cp -r {shlex.quote(str(directory))} COPY && chmod -R u+w COPY"
        raise ValueError(
            f"{directory} cannot be written to; make it writable, or copy it and resume the copy: {copy} && gimbal train --resume COPY"
        )


def finished(run: AbstractRun, directory: Path) -> Summary | None:
    """The summary of a run that has done all its steps."""
    if not (directory / SUMMARY).is_file() or not (directory / "model").is_dir():
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
            checkpoint.restore_recipe(directory, recipes.tell)
            return directory
    known = [path.parent.name for path in runs.glob(f"*/{config.RECIPE_FILE}")]
    raise ValueError(f"there is no run {run} (no {config.RECIPE_FILE} in it){config.nearest(str(run), known)}")


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


def compare(
    targets: Sequence[str | Path] | Mapping[str, str | Path | Sequence[str | Path]],
    *,
    metric: str | None = None,
    threshold: float | None = None,
    runs: str | Path = RUNS,
) -> Comparison:
    """Compare runs over their seeds: interquartile means, intervals, times to a threshold, and a verdict in words.

    ``targets``: runs, directories of runs, or patterns; they are grouped by recipe, with seeds as repetitions. In a mapping from
    names, each value is one group. ``metric`` is an evaluation metric (default: pass@1 or the score) or a training metric;
    ``threshold`` is the level to which tokens and seconds are counted, by default the highest that every run reaches.
    """
    from gimbal.report import arms
    from gimbal.report.compare import compare as compared

    given: list[tuple[str, list[Path]]] = []
    for name, value in targets.items() if isinstance(targets, Mapping) else [("", target) for target in targets]:
        several = [value] if isinstance(value, str | Path) else value
        given.append((name, [directory for one in several for directory in find_runs(one, Path(runs))]))
    if not given:
        raise ValueError("there is nothing to compare: name runs, directories of runs, or patterns")
    return compared(arms.arms(given), metric=metric, threshold=threshold)


def weights(directory: Path) -> Path:
    """The newest saved model of a run; a damaged one is skipped with a message."""
    newest = checkpoint.newest_whole(directory, recipes.tell, "model/")
    if newest is None:
        raise ValueError(f"{directory} holds no checkpoint yet")
    return newest / "model"


def version(target: str, runs: Path) -> int:
    """The version of the weights that ``to_evaluate`` uses: the step of a run's newest checkpoint, 0 for a model."""
    if is_model(target):
        return 0
    return checkpoint.step_of(weights(find_run(target, runs)).parent)


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


def evaluate(run: AbstractRun) -> EvalResult:
    """Evaluate the policy that the run names; nothing is trained."""
    policy = run.policy.load(run.seed).to(device.prepare(run.threads))
    return evaluate_held_out(run, policy, weights=OfPolicy(policy, policies.separate(run, policy)))


def to_evaluate(target: str, recipe: str, runs: Path) -> AbstractRun:
    """The run to evaluate: a run with its newest weights, or a model (a directory or a shipped one) with a recipe's evaluation."""
    if is_model(target):
        return of_model(target, recipe)
    directory = find_run(target, runs)
    run = config.load(directory, AbstractRun)[1]
    return policies.at(run, weights(directory))
