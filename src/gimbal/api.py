"""The Python interface: ``gimbal.train(...)`` and what it shares with the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gimbal import config, durable, recipes
from gimbal.config.own import OwnError, fault
from gimbal.environments.tables import Rewritten
from gimbal.learning.base import OfPolicy
from gimbal.learning.ranks import rank, several
from gimbal.policies.base import AbstractPolicy
from gimbal.recipes.configure import configured
from gimbal.recipes.shipped import is_model, of_model
from gimbal.report import trackers
from gimbal.report.arms import arms
from gimbal.report.compare import compare as compared
from gimbal.report.comparison import Comparison
from gimbal.report.files import Summary
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import checkpoint, device, directories, policies
from gimbal.runtime.directories import RUNS
from gimbal.runtime.evaluate import EvalResult, evaluate_held_out
from gimbal.runtime.run import AbstractRun
from gimbal.runtime.statement import counted, statement
from gimbal.waiting import tell


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run's results: its directory, its resolved recipe, and the figures of summary.json."""

    directory: Path
    run: AbstractRun
    summary: Summary

    def policy(self) -> AbstractPolicy:
        """The trained policy, from the newest checkpoint."""
        return self.run.policy.at(directories.weights(self.directory)).load(self.run.seed)


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
    start = prepare(recipe, config.flatten(overrides), name=name, resume=resume, runs=Path(runs))
    directory = place(start, name, Path(runs))
    if directory is None:  # code after this call is for rank 0 only
        raise SystemExit(0)
    return launch(start, directory, track=tracked)


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is trained: a recipe's name, its resolved run, and the directory of the run that it continues (None: a new one).

    ``notices`` are printed once the run has begun, so that a refusal is one sentence.
    """

    recipe: str
    run: AbstractRun
    resumed: Path | None = None
    notices: list[str] = field(default_factory=list)


def prepare(
    recipe: str | None,
    overrides: Mapping[str, Any],
    *,
    name: str | None = None,
    resume: str | Path | None = None,
    earlier: str | Path | None = None,
    runs: Path,
) -> Start:
    """A recipe or that of an ``earlier`` run, with overrides; or a run to ``resume``, which only ``steps`` changes."""
    if resume is not None:
        directory = directories.find_run(resume, runs)
        if set(overrides) - {"steps"} or name:
            raise ValueError(directories.kept(directory))
        recipe, run = directories.to_resume(directory, overrides.get("steps"))
        return Start(recipe=recipe, run=run, resumed=directory)
    notices: list[str] = []
    if earlier is None:
        recipe = recipe or recipes.default(overrides)
        return Start(recipe=recipe, run=recipes.load(recipe, overrides, notices.append), notices=notices)
    directory = directories.find_run(earlier, runs)
    recipe, run = config.load(directory, AbstractRun)
    run = configured(run, overrides, notices.append)
    model = directories.trained(directory)
    if model and not any(key.partition(".")[0] in ("model", "policy") for key in overrides):
        notices.append(
            f"using the recipe of {directory} with the initial weights; to start from its trained weights, add model={model}"
        )
    return Start(recipe=recipe, run=run, notices=notices)


def place(start: Start, name: str | None, runs: Path) -> Path | None:
    """Where it is trained. None for the other ranks under torchrun: they have then followed rank 0 to the run's end."""
    if rank() > 0:
        from gimbal.runtime.local import follow

        follow(start.run)
        return None
    return start.resumed or directories.create(start.run, start.recipe, name, runs)


def launch(start: Start, directory: Path, *, track: Sequence[str] | None = None, header: bool = False) -> Result:
    """Train in this directory. A new run that is refused before its first step leaves nothing behind. One that fails in its first
    step keeps recipe and stopped.json for the doctor, and the same command reuses the directory.

    Notices, advice and (with ``header``) a description of the run are printed once it has begun.
    """
    recipe, run, resume = start.recipe, start.run, start.resumed is not None
    under_way: list[bool] = []
    with directories.alone(directory):
        for name in directories.FILES:
            durable.regular(directory / name)
        try:
            from gimbal.runtime.local import run_local  # late: only a run needs the console

            # All ranks must make the same calls: the others have joined and would wait for this one forever.
            if resume and not several() and (done := directories.finished(run, directory)) is not None:
                longer = f"{directories.resuming(directory)} steps={2 * run.steps}"
                tell(f"{directory} is finished ({counted(done.steps, 'step')}). To train longer: {longer}")
                return Result(directory=directory, run=run, summary=done)
            if resume:
                directories.check_writable(directory)
            run = directories.settled(run)
            advice = [directories.changed(run, directory)] if resume else recipes.warnings(run, recipe)
            # One that has recorded nothing, such as those that --seeds makes, has lost nothing.
            anew = resume and checkpoint.newest(directory) is None and directories.finished_steps(directory) > 0

            def begun(edited: bool) -> None:
                under_way.append(True)
                if resume:
                    directories.lengthen(start.run, directory, recipe)
                if header:
                    print(f"{directory}{', from step 1 (it has no checkpoint)' * anew}: {statement(run)}", flush=True)
                for sentence in [*start.notices, *(said for said in advice if said)]:
                    tell(sentence.removesuffix(directories.SAME) if edited else sentence)

            if not resume:  # of an earlier run that failed or was killed here
                trackers.forget(directory)
            tracked = trackers.of_run(directory, () if track is None and not resume else track)
            summary = run_local(run, directory, resume=resume, name=recipe, track=tracked, begun=begun)
            return Result(directory=directory, run=run, summary=summary)
        except BaseException as error:
            told = fault(error, {type(part).__name__: key for key, part in config.paths(run).items()})
            steps = directories.finished_steps(directory)
            if not resume:
                directories.discard(directory)
            if isinstance(error, OSError) and steps and (way := durable.remedy(error)):
                raise ValueError(f"{way}. Then continue with: {directories.resuming(directory)}") from error
            if told:
                when = f"after step {steps}" if steps else "in the first step" if under_way else "before the first step"
                # Before what it must do: "return the Group in the first step" would be another demand.
                said = told.replace("; it must", f" {when}; it must", 1) if "; it must" in told else f"{told}, {when}"
                raise OwnError(said) from error
            if isinstance(error, RewardError | Rewritten) and under_way and not steps and not resume:
                raise type(error)(f"{error}. No step was finished: fix it, then start it again as before") from error
            raise


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
    return compared(arms(directories.named_runs(targets, Path(runs))), metric=metric, threshold=threshold)


def version(target: str, runs: Path) -> int:
    """The version of the weights that ``to_evaluate`` uses: the step of a run's newest checkpoint, 0 for a model."""
    if is_model(target):
        return 0
    return checkpoint.step_of(directories.weights(directories.find_run(target, runs)).parent)


def evaluate(run: AbstractRun) -> EvalResult:
    """Evaluate the policy that the run names; nothing is trained."""
    policy = run.policy.load(run.seed).to(device.prepare(run.threads))
    return evaluate_held_out(run, policy, weights=OfPolicy(policy, policies.separate(run, policy)))


def to_evaluate(target: str, recipe: str, runs: Path) -> AbstractRun:
    """The run to evaluate: a run with its newest weights, or a model (a directory or a shipped one) with a recipe's evaluation."""
    if is_model(target):
        return of_model(target, recipe)
    directory = directories.find_run(target, runs)
    run = config.load(directory, AbstractRun)[1]
    return policies.at(run, directories.weights(directory))
