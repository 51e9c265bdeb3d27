"""Turn overrides from a command line, a file or Python into a checked run."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gimbal.config import override, paths, read
from gimbal.config.aliases import INPUTS
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.forms import short
from gimbal.environments.gym import Gymnasium, Registered
from gimbal.environments.minari import Minari
from gimbal.environments.mixture import Mixed
from gimbal.environments.reasoning import ReasoningGym
from gimbal.environments.split import Split, parted
from gimbal.policies.control import StepSampling
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import not_diffused
from gimbal.policies.greedy import Greedy
from gimbal.policies.token import CausalLM
from gimbal.recipes.sizes import sized
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.beside import OWN, methods, names, together
from gimbal.rewards.function import Function
from gimbal.rewards.recorded import Recorded
from gimbal.runtime import compose
from gimbal.runtime.run import AbstractRun, HeldOut
from gimbal.workflows.agent import Agent
from gimbal.workflows.demonstrated import Demonstrated

LEARNED = ("policy", "critic", "reference", "update")  # where parts have the sizes of the environment
OWN_TASKS = {"tasks", "tasks.tasks"}  # the second: of what cuts, filters or wraps others
READ_BY = ("prompt", "answer", "answer_after", "system", "chat")  # fields of Dataset that determine how a row is read


def configured(
    run: AbstractRun, overrides: Mapping[str, Any], notice: Callable[[str], None], *, trains: bool = True
) -> AbstractRun:
    """The run with these overrides, checked as a whole: two parts that consume the same ratio are refused here.

    ``reward`` is another name for ``rewards``. ``config/parts.py`` (SHORT) turns functions, references and files into parts. Without
    ``trains`` the run is only evaluated.
    """
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        ours = INPUTS.get(key, key)
        if ours in changes:
            raise ValueError(f"{key} sets {ours}, which is already given; give only one of them")
        if (
            INPUTS.get(key) == "tasks.environment"
            and "tasks" not in overrides
            and not hasattr(run.tasks, "environment")
        ):
            raise ValueError(f"{key}: this recipe acts in no environment; start from sac, dqn, cartpole or pendulum")
        changes[ours] = value
    if "policy" not in changes and not isinstance(run.policy, Denoiser):
        for key in {"model", "policy.model"} & changes.keys():
            not_diffused(str(changes[key]))
    if "agent" in overrides:
        changes = _with_agent(changes)
    changes = _weighted(changes)
    if (
        changes.keys() & OWN_TASKS
        and not isinstance(short(changes.get("tasks", "")), Minari)
        and run.held_out is not None
        and not _evaluated(changes)
    ):
        if own := [key for key in changes if key.startswith("held_out.")]:
            raise ValueError(
                f"{own[0]} belongs to the recipe's evaluation, which uses its own tasks, not yours; add held_out.tasks=FILE.jsonl"
            )
        changes["held_out"] = None
        notice(
            "no held-out evaluation: the recipe's evaluation uses its own tasks, not yours; add held_out=FILE or held_out=0.1"
        )
    recipe, run = run, _with_data(run, changes, notice)
    if trains:
        _replaced(recipe, run, changes, notice)
    run = _solved(run, changes, notice)
    run = _beside(recipe, run, changes, notice)
    run = _followed(recipe, _drawn(recipe, run, changes), changes)
    run = _in_processes(recipe, run, changes)
    run, said = sized(recipe, run, changes)
    if said:
        notice(said)
    run = _wide(_fitted(recipe, _apart(recipe, run, changes), changes), changes)
    compose.check(run)
    return run


def _with_agent(changes: Mapping[str, Any]) -> dict[str, Any]:
    """agent=agent.py:solve, or a command line, as the workflow. The agent scores itself unless a reward is given."""
    given = changes["workflow"]
    if isinstance(given, str) and not re.match(r"\w*Agent\(", given):
        given = Agent(program=str(given))
    return {"rewards": (), **changes, "workflow": Agent(program=given) if inspect.isfunction(given) else given}


def _weighted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """``reward_weights`` (TRL's name) as the weights of the rewards given with it as functions or parts."""
    rewards, weights = changes.get("rewards"), changes.get("reward_weights")
    listed = isinstance(rewards, list | tuple)
    given = list(rewards) if listed else [rewards]
    if weights is None or isinstance(weights, str) or not (listed or callable(rewards) or is_dataclass(rewards)):
        return dict(changes)  # as text, each name carries its weight: the notice on reward_weights says so
    amounts = list(weights) if isinstance(weights, list | tuple) else [weights]
    if len(amounts) != len(given):
        raise ValueError(
            f"reward_weights has {len(amounts)} weights for {len(given)} rewards; give one for each, such as "
            f"reward_weights={[1.0] * len(given)}"
        )
    parts = [
        Function(function=one) if callable(one) and not is_dataclass(one) else read(one, AbstractReward, "reward")
        for one in given
    ]
    rest = {key: value for key, value in changes.items() if key != "reward_weights"}
    return rest | {"rewards": [replace(part, weight=weight) for part, weight in zip(parts, amounts, strict=True)]}


def _with_data(run: AbstractRun, changes: Mapping[str, Any], notice: Callable[[str], None]) -> AbstractRun:
    """The run with its overrides; those on tasks apply to each set of a mixture and to the evaluation's rows."""
    given = changes.get("held_out")
    amount = _number(given)
    named = isinstance(given, str) and re.fullmatch(r"[A-Za-z_]\w*", given) and given.lower() not in ("none", "null")
    if amount is None and not named:
        return _alike(override(run, _spread(run, changes), notice), changes)
    rest = {key: value for key, value in changes.items() if not f"{key}.".startswith("held_out.")}
    run = override(run, _spread(run, rest), notice)
    if amount is not None:
        if amount == 1 and (isinstance(given, float) or "." in str(given)):
            raise ValueError(
                f"held_out={given} could mean all tasks or one: give a share below 1, such as 0.1, or held_out=1 for one task"
            )
        if not isinstance(run.tasks, Dataset | Rows | Mixed | Split):
            raise ValueError(
                f"held_out={given} sets rows of a dataset aside, but tasks is {type(run.tasks).__name__}, which generates its tasks: "
                f"give held_out.tasks='{type(run.tasks).__name__}(...)' or held_out=FILE, or drop held_out"
            )
        tasks, held = parted(run.tasks, amount)
    else:
        tasks, held = run.tasks, _other_split(run.tasks, str(given))
    run = replace(run, tasks=tasks, held_out=HeldOut(tasks=held))
    return override(run, {key: value for key, value in changes.items() if key.startswith("held_out.")}, notice)


def _drawn(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """An evaluation on the user's tasks samples like the recipe's: if training copies written answers, with another engine."""
    before, now = recipe.held_out, run.held_out
    if not run.policy.family.judged:  # an environment's return is the score
        return run
    if before is None or now is None or {"engine", "held_out.engine", "workflow", "held_out.workflow"} & set(changes):
        return run
    now = replace(now, engine=now.engine or before.engine, workflow=now.workflow or before.workflow)
    if now.engine is not None and now.rewards is None and all(isinstance(reward, Recorded) for reward in run.rewards):
        if isinstance(run.workflow, Demonstrated) and len(now.tasks) and "completion" in now.tasks[0].columns:
            # Evaluated by its loss.
            return replace(run, held_out=replace(now, engine=run.engine, workflow=run.workflow))
        raise ValueError(
            "the evaluation samples answers, but no reward can score them: give held_out.rewards=FILE.py:FUNCTION, rows with written "
            "answers for a held-out loss, or held_out=none"
        )
    return replace(run, held_out=now)


def _replaced(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any], notice: Callable[[str], None]) -> None:
    """Tell of rewards by which the recipe works that reward= replaces: ttrl without its vote is GRPO with labels."""
    there = {type(reward) for reward in run.rewards}
    lost = [reward for reward in methods(recipe.rewards) if type(reward) not in there]
    if not lost or changes.get("rewards", ()) == ():  # an agent scores itself
        return
    given = changes["rewards"]
    own = str(given) if isinstance(given, str) and re.fullmatch(r"[^\s,*()]+:\w+", given) else OWN
    notice(
        f"reward= replaces {names(lost)}, which belongs to this recipe's method: to keep it, type "
        f"{together(lost, recipe.rewards, own)}"
    )


def _solved(run: AbstractRun, changes: Mapping[str, Any], notice: Callable[[str], None]) -> AbstractRun:
    """Given tasks that are solved in one environment alone, a workflow that acts in another acts in theirs, unless the user sets it."""
    spec = run.tasks.solved_in if "tasks" in changes and "workflow" not in changes else None
    tools = {path: part for path, part in paths(run).items() if re.fullmatch(r"workflow\.(.*\.)?tool", path)}
    given = {key.removeprefix("workflow.") for key in changes}
    tools = {path: part for path, part in tools.items() if type(part) is not type(spec)}
    if spec is None or not tools or any(re.match(r"(.*\.)?tool(\.|$)", key) for key in given):
        return run
    notice(f"the tasks are solved in {type(spec).__name__}(): workflow.tool=... sets another environment")
    return override(run, dict.fromkeys(tools, spec))


def _followed(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """An evaluation with a workflow of its own takes over what the user changed in the run's, where the two were alike."""
    before, now, held_out = recipe.workflow, run.workflow, run.held_out
    own = None if held_out is None else held_out.workflow
    if own is None or not type(before) is type(now) is type(own) or "held_out.workflow" in changes:
        return run
    was, new, its = vars(before), vars(now), vars(own)
    changed = {name: new[name] for name in new if new[name] != was[name] == its[name]}
    assert held_out is not None
    follows = replace(own, **changed)  # pyrefly: ignore[bad-specialization]; every part is a dataclass
    return replace(run, held_out=replace(held_out, workflow=follows))


def _in_processes(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """An evaluation with an engine of its own has its environments in processes where the run has, unless the user sets it."""
    was, now, held_out = recipe.engine, run.engine, run.held_out
    own = None if held_out is None else held_out.engine
    if not isinstance(was, Episodes) or not isinstance(now, Episodes) or not isinstance(own, Episodes):
        return run
    if was.apart != own.apart or {"held_out.engine", "held_out.engine.apart"} & changes.keys():
        return run
    assert held_out is not None
    return replace(run, held_out=replace(held_out, engine=replace(own, apart=now.apart)))


def _number(value: Any) -> float | None:
    """The number given for a key that also takes other values."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):  # another kind of value
        return None


def _other_split(tasks: AbstractTasks, split: str) -> AbstractTasks:
    if isinstance(tasks, Split):  # from an earlier run
        return _other_split(tasks.tasks, split)
    if isinstance(tasks, Mixed):
        return Mixed(sets=tuple(_other_split(each, split) for each in tasks.sets), names=tasks.names)
    if not isinstance(tasks, Dataset):
        raise ValueError(
            f"held_out={split} names a split of a dataset, but tasks is {type(tasks).__name__}, which has no splits: give held_out=FILE"
        )
    return replace(tasks, split=split, streaming=False, epoch_size=0)


def _spread(run: AbstractRun, changes: Mapping[str, Any]) -> dict[str, Any]:
    """For a mixture, tasks.prompt=question applies to each of its sets."""
    tasks = run.tasks
    if "tasks" in changes:
        tasks = short(changes["tasks"])
    if not isinstance(tasks, Mixed):
        return dict(changes)
    of_rows = {f"tasks.{item.name}" for item in fields(Dataset)} - {f"tasks.{item.name}" for item in fields(Mixed)}
    spread: dict[str, Any] = {}
    for key, value in changes.items():
        inner = key.removeprefix("tasks.")
        spread |= {f"tasks.sets.{n}.{inner}": value for n in range(len(tasks.sets))} if key in of_rows else {key: value}
    return spread


def _alike(run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """Held-out rows given only by file are read like the training rows: held_out=test.parquet
    tasks.prompt=question."""
    held_out, tasks = run.held_out, run.tasks
    tasks = tasks.sets[0] if isinstance(tasks, Mixed) else tasks
    tasks = tasks.tasks if isinstance(tasks, Split) else tasks
    given = changes.get("held_out", changes.get("held_out.tasks"))
    if held_out is None or given is None or not isinstance(held_out.tasks, Dataset) or not isinstance(tasks, Dataset):
        return run
    if not isinstance(short(given), Dataset):  # the whole part was given
        return run
    columns = {name: vars(tasks)[name] for name in READ_BY if f"held_out.tasks.{name}" not in changes}
    return replace(run, held_out=replace(held_out, tasks=replace(held_out.tasks, **columns)))


def _evaluated(changes: Mapping[str, Any]) -> bool:
    """Whether the user sets the tasks to evaluate on, or turns evaluation off."""
    return any(key == "held_out" or f"{key}.".startswith("held_out.tasks.") for key in changes)


def _apart(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """If the evaluation was changed, training excludes the new evaluation's questions, as it did the old one's."""
    held_out = run.held_out.tasks if run.held_out is not None else None
    before = recipe.held_out.tasks if recipe.held_out is not None else None
    if held_out == before or not isinstance(run.tasks, ReasoningGym) or not isinstance(held_out, ReasoningGym):
        return run
    if any(key.startswith("tasks.exclude") for key in changes):
        return run
    return replace(run, tasks=replace(run.tasks, exclude=replace(held_out, exclude=None)))


def _wide(run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """A critic on the policy's hidden states gets their width, unless the user sets it."""
    policy = run.policy
    if not isinstance(policy, CausalLM) or policy.width is None:
        return run
    sizes = {f"{path}.width": policy.width for path, part in paths(run).items() if isinstance(part, HiddenValue)}
    return override(run, {path: size for path, size in sizes.items() if not {path, "width"} & set(changes)})


def _begin(run: AbstractRun, real: bool) -> str:
    """Recipes for such actions, of recorded episodes or not."""
    if isinstance(run.tasks, Minari):
        return "td3_bc, iql, cql or bc" if real else "bc policy='Categorical(observations=..., actions=...)'"
    return "sac, td3 or pendulum" if real else "dqn or cartpole"


def _beside(
    recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any], notice: Callable[[str], None]
) -> AbstractRun:
    """With recorded episodes to learn from beside (``store.prior``) and no environment given, the run acts in theirs."""
    before, now = (each.store.prior if isinstance(each.store, Transitions) else None for each in (recipe, run))
    if now is None or now == before or not isinstance(run.tasks, Gymnasium):
        return run
    if now.source in ("", run.tasks.source) or {"tasks", "tasks.environment", "environment"} & set(changes):
        return run
    notice(f"the run acts in {now.source}, as {now.dataset} was recorded there; tasks.environment=... acts elsewhere")
    return replace(run, tasks=replace(run.tasks, environment=now.source))


def _fitted(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """For another environment, fit policy, critic and evaluation to its sizes and bound; what the user sets stays."""
    before = recipe.tasks.source if isinstance(recipe.tasks, Gymnasium | Minari) else ""
    if not isinstance(run.tasks, Gymnasium | Minari) or run.tasks.source == before:
        return run
    if not run.tasks.source:
        raise ValueError(
            f"{vars(run.tasks)['dataset']} does not name its environment, so its sizes and its evaluation are unknown: put "
            "env_spec into its metadata.json"
        )
    world = Registered(source=run.tasks.source).open()
    acts = run.policy.family
    real = acts.densities or "bound" in vars(run.policy)  # of choices among plans there are no densities
    if acts.sampling is StepSampling and real != world.real:
        raise ValueError(
            f"{run.tasks.source} takes {'continuous' if world.real else 'discrete'} actions, which {type(run.policy).__name__} does "
            f"not sample: start from {_begin(run, world.real)}"
        )
    has = {
        "observations": world.observations,
        "actions": world.actions,
        "bound": world.bound,
        "choices": not world.real,
    }
    sizes: dict[str, Any] = {}
    for path, part in paths(run).items():
        own = vars(part) if is_dataclass(part) and path.partition(".")[0] in LEARNED else {}
        if "observations" in own or path == "policy":
            sizes |= {f"{path}.{name}": size for name, size in has.items() if name in own}
    if isinstance(run.policy, Greedy):  # that of the recipe is the size of its own environment's returns
        sizes["policy.scale"] = 1.0
    if run.held_out is not None and isinstance(run.held_out.tasks, Gymnasium):
        sizes["held_out.tasks.environment"] = run.tasks.source

    def given(path: str) -> bool:
        short = "" if path.startswith("held_out.") else path.rpartition(".")[2]  # a short name refers to training
        return any(key in (path, short) or path.startswith(key + ".") for key in changes)

    if not math.isfinite(world.bound) and "policy.bound" in sizes and not given("policy.bound"):
        raise ValueError(
            f"{run.tasks.source} takes actions without a largest one, and {type(run.policy).__name__} samples between bounds: give its "
            "action_space finite ones, or start from pendulum"
        )
    return override(run, {path: value for path, value in sizes.items() if not given(path)})
