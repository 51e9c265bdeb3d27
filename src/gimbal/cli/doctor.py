"""gimbal doctor: diagnose a run, and split a gap between sampler and trainer by cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gimbal.cli.words import Arguments, parse

HELP = """\
gimbal doctor RUN [--runs DIRECTORY] [--json]

Diagnoses a run from its files. It first reports the outcome: evaluation fell, reward fell, nothing learned; with the best step, the
last step and the checkpoint to go back to. Then it names the likely cause (no delivery, lost samples, mismatch, wrong sign, reward
hacking, too few rollouts, staleness, learning rate too high or too low, ...) with the evidence and one experiment to run next.
If an error ended the run, that comes first. Of an unfinished run it says how far it has come and whether it can be resumed; files
above 16 MiB are then not read, only looked for.

gimbal doctor CHECKPOINT --engine A [--against B] [--older CHECKPOINT] [--rollouts 32] [--json]

Samples rollouts with a checkpoint's weights in engine A and splits each token's log-ratio to the trainer into causes that add up:
delivery, numerics (against engine B), sampling, token drift, staleness (sampled with OLDER weights).

  --engine native:int8       an engine and its precision, or a part: 'Native(precision="bfloat16", cache="recompute")'
  --runs DIRECTORY           look up run names there instead of in runs
  --json                     print JSON"""


def doctor(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help", "json"), ("engine", "against", "older", "rollouts", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    if len(arguments.words) != 1 or arguments.overrides:
        raise ValueError("gimbal doctor takes one run or one checkpoint (gimbal doctor --help)")
    if "engine" in arguments.flags:
        return _engines(Path(arguments.words[0]), arguments)
    if arguments.flags.keys() - {"json", "runs"}:
        raise ValueError("--against, --older and --rollouts need an engine: --engine native:int8")
    from gimbal.config.own import visible
    from gimbal.report.doctor import diagnose
    from gimbal.runtime.directories import RUNS, find_run, progress

    directory = find_run(arguments.words[0], Path(arguments.flags.get("runs", RUNS)))
    unfinished, fault = progress(directory)
    diagnosis = diagnose(directory, unfinished=unfinished, fault=fault)
    print(diagnosis.json() if "json" in arguments.flags else visible(diagnosis.text()))
    return 0


def _engines(checkpoint: Path, arguments: Arguments) -> int:
    from gimbal import config
    from gimbal.engines.base import AbstractEngineSpec
    from gimbal.report.gap import described, figures
    from gimbal.runtime.attribution import explain
    from gimbal.runtime.run import AbstractRun

    def engine(flag: str) -> AbstractEngineSpec | None:
        words = arguments.flags.get(flag)
        if words is None:
            return None
        name, colon, precision = words.partition(":")
        if "(" not in words and "." not in words:
            words = f"{name.capitalize()}({f'precision={precision!r}' if colon else ''})"
        return config.read(config.Text(words), AbstractEngineSpec, flag)

    older = arguments.flags.get("older")
    chosen = engine("engine")
    assert chosen is not None
    _, run = config.load(_run_of(checkpoint), AbstractRun)
    found = explain(
        run,
        _weights(checkpoint),
        chosen,
        engine("against"),
        older=_weights(Path(older)) if older else None,
        count=config.read(config.Text(arguments.flags.get("rollouts", "32")), int, "--rollouts"),
    )
    if "json" in arguments.flags:
        import json

        print(json.dumps(figures(found), indent=1))
    else:
        print(described(found, arguments.flags["engine"], arguments.flags.get("against")))
    return 0


def _weights(checkpoint: Path) -> Path:
    """The model of a checkpoint, of a run (its newest), or a model directory itself."""
    from gimbal.runtime.checkpoint import MANIFEST, spoilt
    from gimbal.runtime.directories import weights

    if (checkpoint / "model" / "config.json").is_file() and (checkpoint / MANIFEST).is_file():
        if told := spoilt(checkpoint, "model/"):
            raise ValueError(told)
        return checkpoint / "model"
    if (checkpoint / "checkpoints").is_dir():
        return weights(checkpoint)
    if (checkpoint / "config.json").is_file():
        return checkpoint
    raise ValueError(f"{checkpoint} is neither a checkpoint (runs/NAME/checkpoints/step_000025) nor a run that has one")


def _run_of(checkpoint: Path) -> Path:
    """The run directory that a checkpoint lies in: its tasks, sampling and faults."""
    from gimbal.config import RECIPE_FILE

    for directory in (checkpoint, *checkpoint.resolve().parents[:3]):
        if (directory / RECIPE_FILE).is_file():
            return directory
    raise ValueError(
        f"{checkpoint} is not inside a run: no directory above it has the {RECIPE_FILE} that says what to sample and how"
    )
