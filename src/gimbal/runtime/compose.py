"""Whether the parts of a run fit together: refusals and warnings, each with its reason, before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from gimbal.engines.tempered import Tempered
from gimbal.environments.jsonl import Jsonl, Rows
from gimbal.learning.updates.policy_gradient import column_needs, needs_of
from gimbal.objectives.base import DISCREPANCY, UPDATE
from gimbal.ops.paths import get_at
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import interactions
from gimbal.runtime.run import AbstractRun, Run

LOST = {
    "bfloat16": 256,
    "float16": 2048,
}  # neighbouring numbers are 1/128 to 1/256 of their size apart, and 1/1024 to 1/2048


MOST_OUTSTANDING = 1_000_000  # rollouts: about a gigabyte before the first of them is drawn


def check(run: AbstractRun) -> list[str]:
    """Warnings; a ValueError where the combination cannot mean what it says."""
    _outstanding(run)
    if not run.sampling.trainable:
        raise ValueError(
            "the trainer evaluates the distribution that was sampled from only on its full support and at a temperature above "
            "0: set sampling.temperature=1 sampling.top_k=0 sampling.top_p=1 sampling.min_p=0 (evaluation may differ)"
        )
    _faults(run)
    if isinstance(run, Run):
        _gradient(run)
        interactions.refuse(run)
    _controllers(run)
    return [*_warnings(run), *interactions.warn(run)] if isinstance(run, Run) else []


def _gradient(run: Run) -> None:
    """The parts of a policy gradient."""
    _ratios_once(run)
    _roles(run)
    _critic(run)
    if "group_N" in column_needs(run) and run.num_generations == 1:
        raise ValueError(
            f"{type(run.advantage).__name__} compares the rollouts of a group, and num_generations is 1, so every advantage "
            "would be 0: raise num_generations, or use ReturnToGo with shaping=(Whitened(),), or GAE with a critic"
        )


def _controllers(run: AbstractRun) -> None:
    """Each moves a number that is there, by a signal that is measured."""
    update = run.learns
    for path, rule in update.controllers.items():
        try:
            value = get_at(update, path)
        except KeyError as error:
            raise ValueError(f"a controller moves {path}, and this run has no {error.args[0]!r} there") from error
        signal = str(getattr(rule, "signal", ""))
        if isinstance(run, Run) and signal.startswith("mismatch/") and DISCREPANCY in run.anchor.absorbs:
            raise ValueError(
                f"the controller of {path} goes by {signal}, which the anchor {type(run.anchor).__name__} leaves unmeasured: "
                "use anchor=Recompute()"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"a controller moves {path}, which is {value!r} and not a number")


def accepted(run: AbstractRun, rewards: Sequence[AbstractReward] | None = None) -> None:
    """Refuse, before the first step, tasks that cannot be read and rewards that cannot score them. ``rewards``: the run's, if open.

    Of rows every one is looked at; of other tasks, which may be made as they are asked for, the first.
    """
    exam = run.held_out
    sets = [(run.tasks, None), *([(exam.tasks, exam.rewards)] if exam else [])]
    for tasks, own in sets:
        with ExitStack() as opened:
            used = rewards if own is None else None
            if used is None:
                given = run.rewards if own is None else own
                used = [opened.enter_context(closing(reward.open())) for reward in given]
            for index in range(len(tasks) if isinstance(tasks, Jsonl | Rows) else min(1, len(tasks))):
                for reward in used:
                    reward.accepts(tasks[index])


def _outstanding(run: AbstractRun) -> None:
    """All that staleness admits is dispatched before the first step."""
    count = (run.max_staleness + 1) * run.prompts_per_step * run.num_generations * run.oversampling
    if count > MOST_OUTSTANDING:
        raise ValueError(
            f"max_staleness={run.max_staleness} lets {count:.3g} rollouts be drawn or wait at once, and gimbal holds "
            f"{MOST_OUTSTANDING:,} at most: lower it (in {run.steps} steps nothing gets older than {max(0, run.steps - 1)}), "
            "prompts_per_step or num_generations"
        )


def _roles(run: Run) -> None:
    """The estimator starts from rewards, a shaping from advantages; a penalty on the discrepancy needs one to measure."""
    if "advantage_NS" in run.advantage.needs:
        raise ValueError(
            f"{type(run.advantage).__name__} changes advantages and is no estimator: put it into shaping=(...)"
        )
    for shape in run.shaping:
        if "advantage_NS" not in shape.needs:
            raise ValueError(
                f"{type(shape).__name__} estimates advantages anew and would discard those of {type(run.advantage).__name__}: "
                "set it as advantage= and take it out of shaping"
            )
        if DISCREPANCY in run.anchor.absorbs and {"proximal_NS", "behavior_NS"} <= shape.needs:
            raise ValueError(
                f"{type(shape).__name__} prices the gap between anchor and sampler, which is always 0 with the anchor "
                f"{type(run.anchor).__name__}: use anchor=Recompute()"
            )


def _faults(run: AbstractRun) -> None:
    """Faults that this run has nothing to be injected into."""
    on = run.faults.active.keys() if run.faults is not None else set[str]()
    if "token_drift" in on and run.policy.unit != "tokens":
        raise ValueError(f"faults.token_drift is for texts, and {type(run.policy).__name__} decides no tokens")
    if any(name.startswith("reward_") for name in on) and not run.rewards:
        raise ValueError("the reward faults change scores, and this run has dense rewards of its environment only")


def _critic(run: Run) -> None:
    """A critic that is read and trained, and predicts what the estimator reads; or none of it."""
    trained = bool({"values_NS", "values_NSM"} & column_needs(run))
    read = bool({"value_NS", "value_NSM"} & needs_of(*run.reward_shaping, run.advantage, *run.shaping))
    if (trained or read) and run.critic is None:
        raise ValueError(
            "a part reads the critic's values, but there is no critic: set critic=, or use a group estimator"
        )
    if run.critic is not None and run.critic.fitted and trained:
        raise ValueError(
            f"{type(run.critic).__name__} is fitted after each step, and no loss can train it: drop the value loss"
        )
    if run.critic is not None and not trained and not run.critic.fitted:
        raise ValueError("there is a critic that no part trains: add ValueLoss() to regularisers, or drop critic=")
    if run.critic is not None and not read:
        raise ValueError(
            f"there is a critic, but {type(run.advantage).__name__} does not read its values: use GAE, or drop critic="
        )


def _warnings(run: Run) -> Iterable[str]:
    consumed = {ratio for _, ratios in _consumers(run) for ratio in ratios}
    if UPDATE not in consumed and (run.max_staleness > 0 or run.optimization.minibatches * run.optimization.epochs > 1):
        yield "no part bounds the update although data is reused or stale: ClippedRatio or a staleness of 0 is safer"
    own = DISCREPANCY in run.anchor.absorbs or isinstance(run.engine, Tempered)
    if run.max_staleness > 0 and run.correction is None and not own and "behavior_NS" not in column_needs(run):
        yield "nothing corrects for the sampler's distribution: correction=TruncatedWeight() does"
    dtype, rate = str(vars(run.policy).get("dtype")), run.optimization.learning_rate
    if dtype in LOST:
        yield (
            f"policy.dtype={dtype} holds weights so coarsely that an update of less than about 1/{LOST[dtype]} of a weight is lost. An "
            f"update is about the learning rate, {rate:g} here, so weights above {LOST[dtype] * rate:.2g} hardly move: "
            "policy.dtype=float32"
        )


def _consumers(run: Run) -> list[tuple[str, frozenset[str]]]:
    parts: list[Any] = [run.objective, *run.regularisers]
    if run.correction is not None:
        parts.append(run.correction)
    return [(type(part).__name__, part.consumes) for part in parts]


def _ratios_once(run: Run) -> None:
    owner: dict[str, str] = {ratio: f"the anchor {type(run.anchor).__name__}" for ratio in run.anchor.absorbs}
    for name, ratios in _consumers(run):
        for ratio in sorted(ratios):
            if ratio in owner:
                raise ValueError(
                    f"{name} and {owner[ratio]} both consume the {ratio} ratio, which would then count twice: drop one of them "
                    "(with the anchor Behavior the clip already holds the discrepancy: correction=None)"
                )
            owner[ratio] = name
