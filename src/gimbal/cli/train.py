"""gimbal train and gimbal eval."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gimbal import hangup
from gimbal.cli import early
from gimbal.cli.words import Arguments, flags_first, parse, table
from gimbal.waiting import LOADING, tell, waiting

if TYPE_CHECKING:
    from gimbal.runtime.run import AbstractRun

TRAIN_HELP = """\
gimbal train [RECIPE] [key=value ...]

RECIPE is a name (gimbal list recipes), path/file.py:function, pkg.module:function, or a YAML or JSON file with a line
`recipe: NAME` and overrides. The default is `stable` if you give model=, tasks= or reward=, otherwise `demo`.
gimbal train RECIPE --help lists all its keys with types and values.

  objective.clip_high=0.3        set a field by its path; --objective.clip-high 0.3 does the same
  learning_rate=1e-3             the last part of the path is enough if it is unique
  objective='SequenceRatio()'    replace a whole part (gimbal list methods)
  model=DIRECTORY                any causal language model of transformers
  tasks=FILE reward=file.py:function held_out=0.1     FILE: JSONL, JSON, CSV, parquet, a directory, or a Hub dataset (docs/data.md)

  --runtime ray      generate and score in Ray processes; the learner stays in this one (fields: gimbal show Ray)
  --name NAME        write to runs/NAME, which must hold no other run
  --runs DIRECTORY   write there instead of runs
  --from RUN         start a new run with the recipe of an earlier one, from the initial weights; overrides allowed
  --resume RUN       continue a stopped run, bit for bit; steps=N trains it longer
  --replay RUN       repeat a --runtime ray run in one process from its recorded schedule, and compare the batches
  --seeds 5          train NAME-s0 to NAME-s4, each in its own process; --seeds 3,8 trains these two. Give the same command
                     again to continue those that stopped or failed. Compare them with `gimbal compare`
  --jobs 2           number of seeds to train at the same time, each on its own cores
  --track LIST       tensorboard, wandb, trackio, or several separated by commas; a resumed run keeps them, --track none stops
  --dry-run          print what would be trained
  --print-config     print the resolved recipe as YAML

torchrun --nproc-per-node 2 -m gimbal train ... runs the learner on several processes (docs/distributed.md)"""

EVAL_HELP = """\
gimbal eval RUN|MODEL [--recipe RECIPE] [key=value ...]

Evaluates the newest checkpoint of a run, or a model directory, on held-out tasks. For a model directory, --recipe
gives the evaluation (default: demo).

  --keep FILE               do not evaluate, but write the held-out tasks with the policy's answers: the share of its samples that
                            solve the task (pass_rate) and its best correct answer (completion). Train on it with tasks=FILE
  --certify 'SafetyTest()'  do not evaluate, but test once whether the mean cost is low enough, on tasks no test has used;
                            exit code 1 if it is not. For a run on your own data give the tasks and the cost:
                            "SafetyTest(tasks=fresh.jsonl, cost=mine.py:harm)". Fields: gimbal show SafetyTest. Tasks that were
                            used in a test are listed in safety.jsonl next to the runs"""

UNBEGUN = "stopped before the first step; nothing was saved; give the same command again"


SWITCHES = ("help", "dry-run", "print-config")
VALUED = ("name", "runs", "from", "resume", "replay", "seeds", "jobs", "track")


def train(argv: Sequence[str]) -> int:
    arguments = parse(argv, SWITCHES, VALUED)
    if "help" in arguments.flags and not arguments.words:
        print(TRAIN_HELP)
        return 0
    if "replay" in arguments.flags:
        return _replay(arguments)
    if len(arguments.words) > 1:
        raise ValueError(f"{arguments.words[1]!r} is neither a second recipe nor an override (key=value)")
    chosen = [name for name in ("from", "resume") if name in arguments.flags] + ["RECIPE"] * len(arguments.words)
    if len(chosen) > 1:
        raise ValueError(f"{' and '.join(chosen)} both say what to train; give one of them")
    if "seeds" in arguments.flags and ("resume" in arguments.flags or "seed" in arguments.overrides):
        raise ValueError(
            "--seeds sets the seeds: drop seed=. To continue, give the first command again instead of --resume"
        )
    if "jobs" in arguments.flags and "seeds" not in arguments.flags:
        raise ValueError("--jobs needs --seeds")
    early.check(arguments)
    try:
        with _terminable(), flags_first(arguments, (*SWITCHES, *VALUED, "debug")):
            return _train(arguments)
    except KeyboardInterrupt:  # while loading: once it trains, _train reports it
        if {"resume", "seeds", "help", "dry-run", "print-config"} & set(arguments.flags) or "RANK" in os.environ:
            raise
        print(f"\ngimbal: {UNBEGUN}", file=sys.stderr)
        return 130


@contextmanager
def _terminable() -> Iterator[None]:
    """A scheduler's SIGTERM and a closed terminal act as Ctrl-C while a run loads, just as during training (``interruptible``)."""

    def hung_up(number: int, frame: object) -> None:
        hangup.mute()
        raise KeyboardInterrupt

    # Under torchrun it may mean that another rank died.
    ours = threading.current_thread() is threading.main_thread() and "RANK" not in os.environ
    handlers = {signal.SIGTERM: signal.default_int_handler, **dict.fromkeys(hangup.heard(), hung_up)} if ours else {}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _replay(arguments: Arguments) -> int:
    from gimbal import api, config
    from gimbal.runtime import directories
    from gimbal.runtime.repeat import compared, replayed
    from gimbal.runtime.run import AbstractRun

    if arguments.words or arguments.overrides or not set(arguments.flags) <= {"replay", "runs", "name"}:
        raise ValueError("--replay repeats a run unchanged: with --replay RUN, give only --name and --runs")
    runs = Path(arguments.flags.get("runs", directories.RUNS))
    original = directories.find_run(arguments.flags["replay"], runs)
    recipe, run = config.load(original, AbstractRun)
    run = replayed(run, original)
    directory = directories.create(run, recipe, arguments.flags.get("name") or f"{original.name}-replay", runs)
    api.launch(api.Start(recipe=recipe, run=run), directory, header=True)
    print(compared(original, directory))
    return 0


def _train(arguments: Arguments) -> int:
    with waiting(LOADING):
        from gimbal import api, config, recipes
        from gimbal.cli import show
        from gimbal.config.own import OwnError
        from gimbal.environments.tables import Rewritten
        from gimbal.learning.ranks import rank, several
        from gimbal.report import trackers
        from gimbal.rewards.isolation import RewardError
        from gimbal.runtime import checkpoint, directories

    flags = arguments.flags
    runs, name = Path(flags.get("runs", directories.RUNS)), flags.get("name")
    track = trackers.asked(flags.get("track"))
    earlier, resume = flags.get("from"), flags.get("resume")
    recipe = arguments.words[0] if arguments.words else recipes.default(arguments.overrides)
    with waiting(f"loading the recipe {resume or earlier or recipe} and its tasks"):
        start = api.prepare(recipe, arguments.overrides, name=name, resume=resume, earlier=earlier, runs=runs)
    recipe, run = start.recipe, start.run
    if several() and "seeds" in flags:
        raise ValueError("--seeds starts its own processes: drop torchrun or --seeds")
    if rank() > 0 and {"help", "print-config", "dry-run"} & set(flags):
        return 0
    if "help" in flags:
        print(show.fields_page(run, recipe))
    elif "print-config" in flags:
        # Parts of one's own are saved by their whole path; printed they are named as the reward is, from here.
        here = re.escape(f"{Path.cwd()}{os.sep}")
        print(re.sub(rf"{here}(?=[^\s'\"]+\.py:\w)", "", config.dump(run, recipe)), end="")
        for sentence in start.notices:
            tell(sentence)
    elif "dry-run" in flags:
        if name and "seeds" not in flags:
            directories.free(runs / directories.named(name), run, config.dump(run, recipe))
        _unclaimed(run, arguments, runs / (name or f"{directories.stem_of(recipe)}-{run.seed}"))
        _dry_run(run, recipe, start.notices)
    elif text := flags.get("seeds"):
        from gimbal.cli.seeds import at_once, numbers, train_seeds

        jobs = at_once(flags.get("jobs", "1"))
        rest = [] if track is None else ["--track", ",".join(track) or trackers.NONE]
        stem = name or directories.stem_of(recipe)
        return train_seeds(run, recipe, stem, runs, numbers(text), jobs, rest, start.notices)
    elif (directory := api.place(start, name, runs)) is not None:
        # What there is by now are modules, and full collections would walk them all, in up to a fifth of a step of small rollouts.
        # Once, and not in the library: what a process of the user's own holds would never be collected.
        if not gc.get_freeze_count():
            gc.freeze()
        try:
            api.launch(start, directory, track=track, header=True)
        except KeyboardInterrupt:
            begun = (directory / config.RECIPE_FILE).is_file()
            tell(f"stopped; {directories.way_on(directory)}" if begun else UNBEGUN)
            return 130
        except (RewardError, OwnError, Rewritten) as error:  # can be fixed without changing the recipe
            if checkpoint.newest(directory) is None:
                raise
            raise ValueError(f"{error}. Fix it, then continue with: {directories.resuming(directory)}") from error
    return 0


def _unclaimed(run: AbstractRun, arguments: Arguments, directory: Path) -> None:
    """For a dry run: refuse a directory that the run itself would be refused, because another run keeps something there."""
    from gimbal.cli.seeds import check_several, numbers

    if "seeds" in arguments.flags:
        check_several(run, numbers(arguments.flags["seeds"]))
    elif "resume" not in arguments.flags:
        run.store.start(run.seed).claim(None, directory)


def _dry_run(run: AbstractRun, recipe: str, notices: Sequence[str]) -> None:
    """Check everything but the model, and say what would be done."""
    from gimbal import recipes
    from gimbal.runtime import compose, memory
    from gimbal.runtime.statement import counted, statement

    advice = [*notices, *recipes.warnings(run, recipe), *memory.too_long(run), *compose.accepted(run)]
    compose.rehearse(run)
    print(f"{recipe}: {counted(len(run.tasks), 'task')}; {statement(run)}")
    for sentence in advice:
        tell(sentence)


def evaluate(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help",), ("recipe", "runs", "keep", "certify"))
    if "help" in arguments.flags:
        print(EVAL_HELP)
        return 0
    if len(arguments.words) != 1:
        raise ValueError("gimbal eval takes one run or model directory")
    with waiting(LOADING):
        from gimbal import api
        from gimbal.recipes.configure import configured
        from gimbal.recipes.shipped import is_model
        from gimbal.runtime import compose
        from gimbal.runtime.directories import RUNS

    runs = Path(arguments.flags.get("runs", RUNS))
    run = api.to_evaluate(arguments.words[0], arguments.flags.get("recipe", "demo"), runs)
    trained, changes = run.tasks, dict(arguments.overrides)
    # Where only rows given as held_out are read, what is said of tasks is said of them. A share is of the tasks themselves.
    if "tasks" not in changes and not re.fullmatch(r"[\d.]*", changes.get("held_out", "")):
        changes = {f"held_out.{key}" if key.startswith("tasks.") else key: value for key, value in changes.items()}
    run = configured(run, changes, tell, trains=False)
    if "keep" in arguments.flags:
        from gimbal.runtime.distil import distilled, write_tasks

        tasks = distilled(run)
        write_tasks(tasks, Path(arguments.flags["keep"]))
        solved = sum("completion" in task.columns for task in tasks)
        print(f"{arguments.flags['keep']}: {len(tasks)} tasks, {solved} of them solved at least once")
        return 0
    if "certify" in arguments.flags:
        from gimbal import config
        from gimbal.runtime.safety import SafetyTest, certify

        test = config.read(arguments.flags["certify"], SafetyTest, "--certify")
        verdict = certify(run, test, runs / "safety.jsonl")
        said = "passed" if verdict.passed else "not passed"
        bound = f"at most {verdict.upper:.4g} ({test.bound}); limit {test.limit:g}"
        print(f"{said}: mean cost {verdict.mean:.4g} of {verdict.tasks} tasks, {bound}")
        return 0 if verdict.passed else 1
    if run.held_out is not None and not is_model(arguments.words[0]):
        try:
            said = list(compose.overlap(trained, run.held_out.tasks))
        except (ValueError, OSError):  # training rows are gone or changed: the evaluation does not need them
            said = []
        for sentence in said:
            tell(sentence)
    with waiting("sampling and scoring the held-out tasks"):
        result = api.evaluate(run)
    print(f"{arguments.words[0]}: {result.tasks} held-out tasks, seed {run.seed}")
    table({name: f"{value:.4g}" for name, value in result.metrics().items()})
    if sentence := result.failures():
        print(sentence)
    return 0
