"""What follows from the settings of a run, in one sentence."""

from __future__ import annotations

from gimbal import config
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.offline import Offline
from gimbal.engines.playback import Playback
from gimbal.policies.commits import MaskedSampling
from gimbal.runtime.run import AbstractRun
from gimbal.workflows.single import SingleTurn


def counted(number: int | float, noun: str) -> str:
    """``1 step``, ``1,000 steps``."""
    return f"{number:,}".removesuffix(".0") + f" {noun}{'s' * (number != 1)}"


def statement(run: AbstractRun) -> str:
    """A summary of the run's settings in one sentence."""
    if not run.steps:
        return f"0 steps: nothing is trained{', only evaluated' * (run.held_out is not None)}; seed {run.seed}."
    unit = run.policy.family.unit.replace("_", " ").removesuffix("s")
    prompts, each = run.prompts_per_step, run.num_generations
    drawn = total = counted(prompts * each, "rollout")
    if each > 1:
        drawn = f"{prompts:,} prompts x {each:,} rollouts = {total}" if prompts > 1 else f"{total} of one prompt"
    longest = run.sampling.most if isinstance(run.sampling, MaskedSampling) else run.sampling.max_length
    longest = min(longest, config.plain(run.engine).get("segment") or longest)  # at most a segment of an episode
    return (
        f"{counted(run.steps, 'step')}, each of {drawn} (at most {counted(prompts * each * longest, unit)}) and "
        f"{_moves(run, unit)}; trained on {_made(run)}; seed {run.seed}."
        + (f" {run.faults.sentence()}." if run.faults is not None else "")
    )


def _moves(run: AbstractRun, unit: str) -> str:
    """The updates of a step."""
    if isinstance(run.store, Transitions):  # measured as replay/update_to_data
        after = f" after the first {run.store.learning_starts:,}" if run.store.learning_starts else ""
        return f"{counted(run.store.update_to_data, 'update')} for each {unit}{after}"
    if isinstance(run.store, Recordings):
        return counted(run.store.moves, "update")
    return counted(run.learns.optimization.epochs * run.learns.optimization.minibatches, "update")


def _made(run: AbstractRun) -> str:
    """How old its data is, and what made it."""
    if isinstance(run.engine, Offline | Playback):
        return "recorded data"
    most = run.store.most_age(run.max_staleness) if run.staleness.bounded else None
    age = f"at most {counted(most, 'version')} old" if most else "of the current version"
    age = "of any version so far" if most is None else age
    precision = config.plain(run.engine).get("precision")
    sampler = f"{type(run.engine).__name__} sampler" + (f" in {precision}" if precision else "")
    sampler += "" if isinstance(run.workflow, SingleTurn) else f" driven by {type(run.workflow).__name__}"
    return f"decisions {age}; {sampler}"
