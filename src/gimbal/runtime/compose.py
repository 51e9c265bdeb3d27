"""Check that the parts of a run fit together: refusals and advice, each with its reason, before anything starts.

A rule about one part is in that part (``fits``). Rules here concern the whole run: what no part can see because it involves
a missing part, several similar parts, or the sum of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields

from gimbal.composition import (
    ABSORBS_DISCREPANCY,
    BALANCES,
    ENTROPY,
    FITS_CRITIC,
    GROWS,
    GUIDES,
    REFERENCE,
    TEMPERS,
    AbstractPart,
    AbstractRemembering,
    Advice,
    Composition,
    Refusal,
    Verdict,
)
from gimbal.config import paths
from gimbal.config.own import OwnError, fault, started, wrong
from gimbal.dataflow.base import AbstractBudget, AbstractCurriculum, Progress
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.engines.base import RECORD, RIVALS
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.ranks import several
from gimbal.learning.updates.policy_gradient import REFERENCE as REFERENCE_MODEL
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient, needs_of
from gimbal.nested import get_at, walk
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import CausalLM
from gimbal.records import Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import unmeasured
from gimbal.runtime import checkpoint, policies, roles
from gimbal.runtime.judging import alone, named_apart, numbered, taken, worded
from gimbal.runtime.looking import Copied, Unread, columns_there, looked_at, overlap, unlabelled
from gimbal.runtime.rounds import chosen, plans
from gimbal.runtime.run import AbstractRun, Run
from gimbal.workflows.runner import Driven

MOST_RATE = 1e-5  # AdamW's rate for full training of a pretrained model; published runs use 1e-6 to 5e-6
# The spacing of neighbouring numbers, relative to their size: 1/128 to 1/256, and 1/1024 to 1/2048.
LOST = {"bfloat16": 256, "float16": 2048}


MOST_EPS, MOST_WEIGHT = 1.0, 1e6

MOST_OUTSTANDING = 1_000_000  # rollouts: about a gigabyte before the first is sampled


def check(run: AbstractRun) -> list[str]:
    """Return advice; raise ValueError if the combination cannot work as written."""
    advice: dict[str, None] = {}  # in order, each once: two engines in one run may give the same
    for verdict in verdicts(run):
        if isinstance(verdict, Refusal):
            raise ValueError(verdict.reason)
        advice[verdict.reason] = None
    return list(advice)


def verdicts(run: AbstractRun) -> Iterator[Verdict]:
    """Refusals and advice, first on the run as a whole, because a part's rules may rely on those."""
    kinds = run.learns.kinds
    whole = Composition(run, without=kinds.values())
    yield from _outstanding(run)
    if several() and isinstance(run.policy, CausalLM) and run.policy.vision:
        yield Refusal(
            f"{run.policy.model} takes images, which are not supported with several learner processes: start it without torchrun"
        )
    yield from _trainable(run)
    yield from _controllers(run, whole)
    if isinstance(run.learns, AbstractPolicyGradient):
        yield from _gradient(run.learns, run, whole)
    yield from _numbers(whole)
    yield from _alike(whole)
    yield from _twice(run)
    yield from policies.begins(run)
    yield from policies.unread(run)
    yield from named_apart(run.rewards, "reward")
    if run.held_out is not None and run.held_out.rewards is not None:
        yield from named_apart(run.held_out.rewards, "held_out.rewards")
    yield from _rewards_there(run)
    if run.oversampling > 1 and not run.filters:
        yield Advice(
            "oversampling has no effect without filters: it generates extra groups to replace those that filters drop"
        )
    yield from _able(run.sampler, "engine")
    if run.held_out is not None:
        yield from _able(run.evaluator, "held_out.engine")
        if said := unmeasured(run.rewards if run.held_out.rewards is None else run.held_out.rewards):
            yield Refusal(said)
    if run.workflow.whole and whole.doing(GROWS):
        yield Refusal(
            f"{type(run.budget).__name__} samples more rollouts for a scored group, but {type(run.workflow).__name__} samples a "
            "group as a whole, once: use budget=Fixed(), or workflow=SingleTurn()"
        )
    for part in whole.parts:
        yield from part.fits(whole)
    for name, kind in kinds.items():
        yield from roles.alone(policies.alone(run, name), kind)


def _numbers(whole: Composition) -> Iterator[Verdict]:
    """Numbers with one meaning in many parts that could flip signs or erase every score."""
    for part in whole.parts:
        name, values = type(part).__name__, vars(part)
        if isinstance(eps := values.get("eps"), float | int) and not 0 <= eps <= MOST_EPS:
            yield Refusal(
                f"eps of {name} is {eps}; it prevents division by 0 and must be a small number from 0 to {MOST_EPS:g}"
            )
        if isinstance(ddof := values.get("ddof"), int) and not 0 <= ddof <= 1:
            yield Refusal(
                f"ddof of {name} is {ddof}; use 1 to divide the variance by the number of samples minus one, 0 by the number"
            )
        if isinstance(part, AbstractReward) and not abs(part.weight) <= MOST_WEIGHT:
            yield Refusal(
                f"the weight of {name} is {part.weight:g}; it must be a number between -{MOST_WEIGHT:g} and {MOST_WEIGHT:g}"
            )


def _gradient(method: AbstractPolicyGradient, run: AbstractRun, whole: Composition) -> Iterator[Verdict]:
    """Whether the parts of a policy gradient fit each other."""
    yield from roles.ratios_once(method)
    yield from _roles(method)
    yield from roles.fits(method, run)
    yield from _critic(method, whole)
    if "group_N" in whole.needs and run.num_generations == 1 and isinstance(run.budget, Fixed):
        yield Refusal(
            f"{type(method.advantage).__name__} compares the rollouts of a group, but num_generations is 1, so every advantage "
            "would be 0: raise num_generations, or use ReturnToGo with shaping=(Whitened(),), or GAE with a critic"
        )
    yield from _unbounded(method, run, whole)
    yield from _never_clips(method, run, whole)
    yield from _as_drawn(method, whole)
    yield from _coarse(method, run)
    yield from _fast(method, run)
    if method.reference_resets and REFERENCE_MODEL not in method.models():
        yield Advice("reference_resets renews a reference that no part reads")
    yield from _moving(method)


def _moving(method: AbstractPolicyGradient) -> Iterator[Verdict]:
    """A reference that follows the policy."""
    if not 0 <= method.reference_rate < 1:
        yield Refusal(
            f"reference_rate is {method.reference_rate}, but it is the part of the way to the policy that the reference moves "
            "after each update: set it from 0 (off) to below 1"
        )
    if method.reference_rate and REFERENCE_MODEL not in method.models():
        yield Advice("reference_rate moves a reference that no part reads")
    if method.reference is None:
        return
    if REFERENCE_MODEL not in method.models():
        yield Refusal(
            "reference is a model that no part reads: add advantage=Distillation(), regularisers=[KLPenalty()] or "
            "reward_shaping=[KLReward()], or leave it out"
        )
    if method.reference_rate or method.reference_resets or method.renewal is not None:
        yield Refusal(
            "reference is a model of its own, and reference_rate, reference_resets or renewal would replace it by the policy: keep one "
            "of them"
        )


def _able(sampler: Driven, where: str) -> Iterator[Verdict]:
    """The engine must be able to do what the workflow requires."""
    engine, workflow = sampler.engine, sampler.workflow
    if lacks := sorted(workflow.requires - engine.can):
        own = ", ".join(sorted(engine.can)) or "do none of it"
        fields = {RECORD: "entropy=true", RIVALS: "rivals=true"}
        asked = [f"{where}.{fields[what]}" for what in lacks if what in fields]
        way = " ".join(asked) if len(asked) == len(lacks) else f"use {where}=Native()"
        yield Refusal(
            f"workflow={type(workflow).__name__}() needs an engine that can {' and '.join(lacks)}, but "
            f"{where}={type(engine).__name__}() can {own}: {way}, or another workflow"
        )


def opened(run: AbstractRun) -> list[AbstractReward]:
    """The run's rewards, opened; refused before a model is loaded if they cannot score the first task. ``accepted`` checks the
    other tasks."""
    rewards = [reward.open() for reward in run.rewards]
    try:
        if rewards and len(run.tasks) and isinstance(first := run.tasks[0], Task):
            for reward in rewards:
                worded(reward, run.sampler, run.sampling)
                taken(reward, first, rewards)
    except BaseException:
        for reward in rewards:
            reward.close()
        raise
    return rewards


def accepted(
    run: AbstractRun, rewards: Sequence[AbstractReward] | None = None, policy: AbstractPolicy | None = None
) -> list[str]:
    """Refuse, before the first step, a missing model, tasks that cannot be read or asked, and parts that cannot use them.
    Return advice: the first doubtful task, rows that the vocabulary cannot spell, and how many held-out rows are also trained on.
    ``rewards``: the run's, if open; ``policy``: if it is loaded.

    Every row is checked (a sample above 100,000); of other tasks, which may be generated on demand, only the first.
    """
    if policy is None:
        policies.check_files(run)
    held_out, doubts, columns, numbers, notes = run.held_out, list[str](), set[str](), "", list[str]()
    unread, copied = Unread(policy), Copied(policy)
    evaluated = [(held_out.tasks, held_out.rewards, run.evaluator, run.evaluated_by)] if held_out else []
    for evaluates, (tasks, own, sampler, sampling) in enumerate(
        [(run.tasks, None, run.sampler, run.sampling), *evaluated]
    ):
        if not len(tasks):
            raise ValueError(
                f"{'tasks' if tasks is run.tasks else 'held_out.tasks'} ({type(tasks).__name__}) holds no tasks; at least one"
            )
        with ExitStack() as opened:
            used = rewards if own is None else None
            if used is None:
                given = run.rewards if own is None else own
                used = [opened.enter_context(closing(reward.open())) for reward in given]
            notes += alone(used, run) if evaluates else ()
            for task in looked_at(tasks):
                if not isinstance(task, Task):
                    raise wrong(tasks, "__getitem__", task, "a Task(id=..., prompt=...)")
                sampler.workflow.accepts(task)
                copied.look(task, sampler.workflow)
                if tasks is run.tasks:
                    run.budget.accepts(task)
                    columns |= task.columns.keys()
                    unread.look(task)
                numbers = numbers or numbered(task, used)
                for reward in used:
                    worded(reward, sampler, sampling)
                    taken(reward, task, used)
                if policy is not None and (doubt := policy.accepts(task, sampling.max_length)):
                    doubts.append(doubt)
    columns_there(run, columns)
    known = overlap(run.tasks, held_out.tasks) if held_out else ()
    return [*doubts[:1], *unread.sentence(), *unlabelled(run, columns), *filter(None, [numbers]), *notes, *known]


def live(run: AbstractRun) -> tuple[AbstractCurriculum, AbstractBudget]:
    """The run's curriculum and budget, started; refused if a checkpoint could not hold their states."""
    curriculum = started(run.curriculum, AbstractCurriculum, run.tasks, run.seed)
    budget = started(run.budget, AbstractBudget, run.num_generations, run.sampling.max_length)
    checkpoint.savable(curriculum, budget)
    return curriculum, budget


def rehearse(run: AbstractRun) -> None:
    """Start them and ask for a first round: what they refuse only then is refused without a model too."""
    try:
        curriculum, budget = live(run)
        for part in (curriculum, budget):
            part.step(Progress(version=0, drawn=0))
        plans(budget, [chosen(curriculum) for _ in range(run.prompts_per_step)])
    except Exception as error:  # whatever a user's part raises
        if told := fault(error, {type(part).__name__: key for key, part in paths(run).items()}):
            raise OwnError(told) from error
        raise


def _outstanding(run: AbstractRun) -> Iterator[Verdict]:
    """Everything that staleness admits is dispatched before the first step."""
    ahead, key = run.max_staleness, "max_staleness"
    if run.staleness.admission is not None:
        ahead, key = run.staleness.admission, "staleness.admission"
    count = (ahead + 1) * run.prompts_per_step * run.num_generations * run.oversampling
    if count > MOST_OUTSTANDING:
        yield Refusal(
            f"{key}={ahead} allows {count:.3g} rollouts in flight or waiting at once, but gimbal holds at most "
            f"{MOST_OUTSTANDING:,}: lower it (in {run.steps} steps nothing gets older than {max(0, run.steps - 1)}), "
            "prompts_per_step or num_generations"
        )


def _roles(method: AbstractPolicyGradient) -> Iterator[Verdict]:
    """The estimator starts from rewards, a shaping from advantages; a penalty on the discrepancy needs one to measure."""
    if "advantage_NS" in method.advantage.needs:
        yield Refusal(
            f"{type(method.advantage).__name__} changes advantages but is not an estimator: put it into shaping=(...)"
        )
    for shape in method.shaping:
        if "advantage_NS" not in shape.needs:
            yield Refusal(
                f"{type(shape).__name__} estimates advantages again and would discard those of {type(method.advantage).__name__}: "
                "set it as advantage= and take it out of shaping"
            )
        if DISCREPANCY in method.anchor.absorbs and {"proximal_NS", "behavior_NS"} <= shape.needs:
            yield Refusal(
                f"{type(shape).__name__} penalises the gap between anchor and sampler, which is always 0 with the anchor "
                f"{type(method.anchor).__name__}: use anchor=Recompute()"
            )


def _critic(method: AbstractPolicyGradient, whole: Composition) -> Iterator[Verdict]:
    """A critic must be read and trained, and predict what the estimator reads; or there must be none."""
    trained = bool({"new_value_NS", "new_value_NSM"} & whole.needs)
    read = bool({"value_NS", "value_NSM"} & needs_of(*method.reward_shaping, method.advantage, *method.shaping))
    if (trained or read) and method.critic is None:
        yield Refusal("a part needs the critic's values, but there is no critic: set critic=, or use a group estimator")
    if method.critic is not None and method.critic.fitted and trained:
        yield Refusal(
            f"{type(method.critic).__name__} is fitted after each step, so no loss can train it: drop the value loss"
        )
    if method.critic is not None and not trained and not method.critic.fitted:
        yield Refusal("no part trains the critic: add ValueLoss() to regularisers, or drop critic=")
    if method.critic is not None and not read:
        yield Refusal(
            f"there is a critic, but {type(method.advantage).__name__} does not read its values: use GAE, or drop critic="
        )


def _trainable(run: AbstractRun) -> Iterator[Verdict]:
    if not run.sampling.trainable:
        drawn, kept = vars(run.sampling), {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        cut = [
            name
            for name in kept
            if drawn.get(name, kept[name]) != kept[name] and (name != "temperature" or not drawn[name])
        ]
        given = " ".join(f"sampling.{name}={drawn[name]:g}" for name in cut) or f"{run.sampling}"
        way = " ".join(f"sampling.{name}={kept[name]:g}" for name in cut) or "one of full support"
        yield Refusal(
            f"{given} cannot be trained with: set {way}. The trainer computes probabilities over everything that can be sampled (full "
            "support), at a temperature above 0"
        )


def _alike(whole: Composition) -> Iterator[Verdict]:
    """Parts that do the same thing, each unaware of the other."""
    if len(whole.doing(FITS_CRITIC)) > 1:
        yield Refusal("two parts train the critic: keep one value loss")
    if len(whole.doing(ENTROPY)) > 1:
        yield Advice("two parts push the entropy")
    if len(whole.doing(REFERENCE)) > 1:
        yield Advice("two parts pull the policy towards the reference")


def _twice(run: AbstractRun) -> Iterator[Verdict]:
    """A filter of gimbal's lets through all that it has let through before; of a user's own that may be otherwise."""
    for place, rule in enumerate(run.filters):
        if rule in run.filters[:place] and type(rule).__module__.startswith("gimbal."):
            yield Refusal(
                f"filters has {type(rule).__name__} twice with the same settings, and the second drops nothing more: keep one"
            )


def _rewards_there(run: AbstractRun) -> Iterator[Verdict]:
    """A reward that a part names but the run lacks would raise KeyError after the first rollouts."""
    known = sorted(reward.name for reward in run.rewards)
    for place, part in walk(run):
        if not isinstance(part, AbstractPart) or isinstance(part, AbstractReward):
            continue
        if unknown := sorted((name, at) for at, name in _named(part) if name not in known):
            name, at = unknown[0][0], f"{place}.{unknown[0][1]}"
            yield Refusal(
                f"{type(part).__name__} reads the reward {name!r}, but this run has {known or 'none'}: name another in {at}"
                f"{f' ({at}={known[0]})' if len(known) == 1 else ''}, or add a reward with that name (weight 0 if it only measures)"
            )


def _named(part: AbstractPart) -> Iterator[tuple[str, str]]:
    """The fields that name a reward, and which: through the facts they read, or because they are declared to hold such names."""
    for item in fields(part):  # type: ignore[arg-type]
        value = getattr(part, item.name)
        if isinstance(value, str) and value.startswith("score/"):
            yield item.name, value.removeprefix("score/")
        elif item.name in part.names_rewards:
            yield from ((item.name, name) for name in (value if isinstance(value, tuple) else (value,)) if name)


def _controllers(run: AbstractRun, whole: Composition) -> Iterator[Verdict]:
    """A controller must change an existing number that is read again in each step, by a signal that is measured."""
    read_once = {item.name for item in fields(AbstractRun)} - {"oversampling"}
    for path, rule in run.learns.controllers.items():
        try:
            value = get_at(run.learns, path)
        except KeyError as error:
            yield Refusal(f"a controller changes {path}, but this run has no {error.args[0]!r} there")
            continue
        if isinstance(run, Run) and path.partition(".")[0] in read_once:
            yield Refusal(
                f"a controller changes {path}, which is read once, when the run begins, so that nothing would move: controllers move "
                "what learns (objective, optimization, stability, ...) and oversampling"
            )
        for place, part in walk(run.learns):
            if isinstance(part, AbstractRemembering) and path.removeprefix(f"{place}.") in part.init():
                yield Refusal(
                    f"a controller changes {path}, which {type(part).__name__} updates itself: drop the controller"
                )
        signal = str(vars(rule).get("signal", ""))
        anchors = whole.doing(ABSORBS_DISCREPANCY)
        if signal.startswith("mismatch/") and anchors:
            yield Refusal(
                f"the controller of {path} reads {signal}, which is not measured with the anchor {type(anchors[0]).__name__}: "
                "use anchor=Recompute()"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Refusal(f"a controller changes {path}, which is {value!r} and not a number")


def _unbounded(method: AbstractPolicyGradient, run: AbstractRun, whole: Composition) -> Iterator[Verdict]:
    """Ratios that drift from 1 without a part that handles them."""
    if whole.doing(BALANCES):
        return
    consumed = {ratio for _, ratios in roles.consumers(method) for ratio in ratios}
    if UPDATE not in consumed and (run.max_staleness > 0 or whole.updates > 1):
        yield Advice(
            "no part bounds the update, although data is reused or stale: objective=ClippedRatio() or max_staleness=0 is safer"
        )
    own = whole.doing(ABSORBS_DISCREPANCY) or whole.doing(TEMPERS)
    if run.max_staleness > 0 and method.correction is None and not own and "behavior_NS" not in whole.needs:
        said = "no part corrects for the sampler's distribution: correction=TruncatedWeight() does"
        if run.max_staleness > 1 and whole.updates == 1:
            said += (
                f". With max_staleness={run.max_staleness} and one update per batch it matters: on a small model, data of age 4 "
                "lowered held-out pass@1 from 0.87 to 0.54, with weights only to 0.81 (claims/README.md)"
            )
        yield Advice(said)


def _as_drawn(method: AbstractPolicyGradient, whole: Composition) -> Iterator[Verdict]:
    """A guide's rows that nothing sets apart."""
    guides = whole.doing(GUIDES)
    if guides and not (whole.has(GuidedRatio) and whole.has(StepRepair)):
        yield Advice(
            f"{type(guides[0]).__name__} takes rows of a guide, and {type(method.objective).__name__} trains on them as if the policy "
            "had drawn them: filters='[StepRepair()]' objective='GuidedRatio()' sets them apart"
        )


def _coarse(method: AbstractPolicyGradient, run: AbstractRun) -> Iterator[Verdict]:
    dtype, rate = str(vars(run.policy).get("dtype")), method.optimization.learning_rate
    if dtype in LOST:
        yield Advice(
            f"policy.dtype={dtype} is so coarse that updates below about 1/{LOST[dtype]} of a weight are lost. An "
            f"update is about the learning rate, {rate:g} here, so weights above {LOST[dtype] * rate:.2g} hardly move: "
            "use policy.dtype=float32, with policy.mixed_precision=bf16 to still compute in bfloat16"
        )


def _fast(method: AbstractPolicyGradient, run: AbstractRun) -> Iterator[Verdict]:
    """A rate that suits a small network, used for full training of a pretrained model."""
    policy, rate = run.policy, method.optimization.learning_rate
    if isinstance(policy, CausalLM) and policy.lora is None and policy.large and rate > MOST_RATE:
        yield Advice(
            f"learning_rate is {rate:g}, which suits a small network; for a pretrained model use about 1e-6: learning_rate=1e-6"
        )


def _never_clips(method: AbstractPolicyGradient, run: AbstractRun, whole: Composition) -> Iterator[Verdict]:
    """Parts that use the ratio to the anchor, which is 1 at every gradient if the anchor is the policy before the only update.

    Anchors at the sampling version are the same if no data is stale. A part that also reads the ratio to the sampler can use
    that, and one with stages makes several updates itself.
    """
    at_update = isinstance(method.anchor, Recompute) or (method.anchor.at_sampling and run.max_staleness == 0)
    by_ratio = any(
        UPDATE in part.consumes and DISCREPANCY not in part.consumes and type(part).stages is AbstractObjective.stages
        for part in method.summed
    )
    if whole.updates == 1 and at_update and by_ratio:
        yield Advice(
            "with one update per batch the ratio is always 1, so the clip never acts; optimization.minibatches=4 makes four updates"
        )
