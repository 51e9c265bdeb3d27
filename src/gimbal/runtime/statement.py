"""What follows from the settings of a run, in one sentence."""

from __future__ import annotations

from gimbal import config
from gimbal.dataflow.budgets.fixed import COLUMN, Fixed
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.offline import Offline
from gimbal.engines.playback import Playback
from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.gym import Gymnasium
from gimbal.environments.mixture import Mixed
from gimbal.environments.split import Split
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
    agents = 1
    if isinstance(run.tasks, Gymnasium):
        from gimbal.environments.agents import agents_in  # late: gymnasium is an extra

        agents = agents_in(run.tasks.source)
    return (
        f"{counted(run.steps, 'step')}, each of {_drawn(run, unit, agents)} and {_moves(run, unit, agents)}; trained on {_made(run)}"
        f"{_chosen(run)}; seed {run.seed}." + (f" {run.faults.sentence()}." if run.faults is not None else "")
    )


def _drawn(run: AbstractRun, unit: str, agents: int) -> str:
    """The rollouts of a step: as many as are known before it. Of several agents each decides in a step of the environment."""
    prompts, each = run.prompts_per_step, run.num_generations
    sizes = "" if isinstance(run.budget, Fixed | UntilMixed) else f"the budget {type(run.budget).__name__}"
    if isinstance(run.budget, Fixed) and _sized(run.tasks):
        sizes = f"each task's {COLUMN}"
    if sizes:
        return f"{counted(prompts, 'prompt')} (how many rollouts is up to {sizes}; num_generations is {each:,})"
    total = counted(prompts * each, "rollout")
    if isinstance(run.budget, UntilMixed):
        total = f"at most {total}"
    drawn = total
    if each > 1:
        drawn = f"{prompts:,} prompts x {each:,} rollouts = {total}" if prompts > 1 else f"{total} of one prompt"
    longest = run.sampling.most if isinstance(run.sampling, MaskedSampling) else run.sampling.max_length
    longest = min(longest, config.plain(run.engine).get("segment") or longest)  # at most a segment of an episode
    if len(run.workflow.players) > 1:  # a row for each role that acts
        return f"{drawn} (at most {counted(longest, unit)} a row)"
    most = prompts * each * longest
    of_agents = f", {counted(most * agents, 'decision')} of {agents} agents" if agents > 1 else ""
    return f"{drawn} (at most {counted(most, unit)}{of_agents})"


def _sized(tasks: AbstractTasks) -> bool:
    """Whether rows say themselves how many rollouts they get; of a mixture, whether those of some set do."""
    match tasks:
        case Split():
            return _sized(tasks.tasks)
        case Mixed():
            return any(map(_sized, tasks.sets))
        case Dataset(streaming=False) | Rows():
            return len(tasks) > 0 and COLUMN in tasks[0].columns
        case _:
            return False


def _chosen(run: AbstractRun) -> str:
    """The parts of the way of its data that are not the defaults, as they would be typed."""
    found = {"curriculum": run.curriculum, "budget": run.budget, "store": run.store}
    usual = (Epochs, Fixed, Once, Transitions, Recordings)  # the last two are told by the updates of a step
    names = [f"{key}={type(part).__name__}" for key, part in found.items() if not isinstance(part, usual)]
    if run.filters:
        names.append(f"filters={','.join(type(part).__name__ for part in run.filters)}")
    if (drafter := vars(run.engine).get("drafter")) is not None:
        names.append(f"drafter={type(drafter).__name__}")
    return f"; {' '.join(names)}" if names else ""


def _moves(run: AbstractRun, unit: str, agents: int) -> str:
    """The updates of a step."""
    if isinstance(run.store, Transitions):  # measured as replay/update_to_data
        after = f" after the first {run.store.learning_starts:,}" if run.store.learning_starts else ""
        each = "decision of an agent" if agents > 1 else unit
        return f"{counted(run.store.update_to_data, 'update')} for each {each}{after}"
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
