"""The evaluation: held-out tasks, sampled and greedy, scored by the run's own rewards."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from gimbal.dataflow.packing import pack
from gimbal.engines.base import AbstractEngine, Request, drained
from gimbal.environments.base import AbstractTasks
from gimbal.learning.base import AbstractLearner, AbstractTrained, OfPolicy
from gimbal.learning.learner import Learner
from gimbal.learning.weight_sync.proof import DeliveryProof
from gimbal.learning.weight_sync.receipts import running
from gimbal.ops.estimators import pass_at_k
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import Sampling
from gimbal.records import AbstractSampling, Drop, Episode, Group, Rollout, Task
from gimbal.report.metrics import passed
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.majority import majority
from gimbal.rewards.scoring import answered, follow_ups, of_all, score
from gimbal.runtime.run import KS, AbstractRun
from gimbal.workflows.demonstrated import Demonstrated

CANARIES = 3  # rollouts for the proof of delivery ...
CANARY_LENGTH = 64  # ... and most decisions in each
PAIRS = "pair/accuracy"  # the name in a pair loss
SAMPLED, GREEDY = "sampled", "greedy"


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Figures of one evaluation, each a mean over tasks; ``greedy_score`` is for the greedy rollout.

    If rewards define a solved task (a score of 1), ``pass_at`` maps k to the unbiased pass@k of the samples and ``greedy``
    is the share solved greedily; ``vote_at`` maps k to maj@k, the share solved by the most common answer of k samples, if a
    reward extracts answers. They are empty and None if the environment's return is the score.
    """

    tasks: int
    score: float
    greedy_score: float
    length: float
    pass_at: dict[int, float]
    greedy: float | None
    vote_at: Mapping[int, float] = field(
        default_factory=dict
    )  # share of tasks that the most common of k answers solves
    shares: Mapping[str, float] = field(
        default_factory=dict
    )  # of texts that are empty or cut off; {} where none is written
    by_source: Mapping[str, float] = field(default_factory=dict)  # pass@1, else the score, of each source of the tasks
    figures: Mapping[str, float] = field(
        default_factory=dict
    )  # what rewards say of all samples together, and of all greedy ones

    def metrics(self) -> dict[str, float]:
        figures = {"eval/score": self.score, "eval/greedy_score": self.greedy_score, "eval/length": self.length}
        figures |= {f"eval/pass@{k}": value for k, value in self.pass_at.items()}
        figures |= {f"eval/maj@{k}": value for k, value in self.vote_at.items()}
        figures |= {f"eval/{name}": value for name, value in (*self.shares.items(), *self.figures.items())}
        kind = "pass@1" if self.pass_at else "score"
        figures |= {f"eval/source/{source}/{kind}": value for source, value in self.by_source.items()}
        return figures if self.greedy is None else figures | {"eval/greedy": self.greedy}


def evaluate_held_out(
    run: AbstractRun,
    policy: AbstractPolicy,
    *,
    weights: AbstractTrained | None = None,
    version: int = 0,
    rewards: Sequence[AbstractReward] | None = None,
) -> EvalResult:
    """Evaluate these weights (default: the policy's own) with a dedicated engine. ``rewards``: the run's own, if they are
    open. ValueError without the weights of a role that has its own."""
    source = OfPolicy(policy) if weights is None else weights
    held_out = run.held_out
    if held_out is None:
        raise ValueError("this run has no held-out tasks; give some: held_out=FILE.jsonl")
    if by_loss(run):
        raise ValueError(
            "this evaluation is the loss on held-out rows: eval/loss in the run's metrics.jsonl and summary.json. To sample answers "
            "add held_out.engine='Native()' held_out.workflow='SingleTurn()' held_out.rewards=FILE.py:FUNCTION"
        )
    engine = run.evaluator.start(policy)
    with ExitStack() as opened:
        opened.enter_context(closing(engine))
        if rewards is None or held_out.rewards is not None:
            own = run.rewards if held_out.rewards is None else held_out.rewards
            rewards = [opened.enter_context(closing(reward.open())) for reward in own]
        opened.enter_context(running(engine, source, version))
        if engine.form is None or not engine.form.held:  # it cannot show what it samples with, so it must say it
            DeliveryProof(source, canary(run, engine, held_out.tasks[0]))(engine, version)
        return evaluate(engine, held_out.tasks, rewards, run.sampling, samples=held_out.samples, seed=run.seed)


@dataclass(frozen=True, kw_only=True)
class HeldOutLoss:
    """The evaluation of supervised training: the run's loss on held-out rows, whose answers are written, not sampled.

    ``accuracy``: the share of pairs whose better answer the policy prefers more than the reference does; None without pairs.
    """

    loss: float
    accuracy: float | None

    def metrics(self) -> dict[str, float]:
        figures = {"eval/loss": self.loss}
        return figures if self.accuracy is None else figures | {"eval/pair/accuracy": self.accuracy}


def by_loss(run: AbstractRun) -> bool:
    """Whether the evaluation copies written answers, so that only a loss can be measured."""
    return run.held_out is not None and isinstance(run.evaluator.workflow, Demonstrated)


def held_out_loss(
    run: AbstractRun, policy: AbstractPolicy, learner: AbstractLearner, rewards: Sequence[AbstractReward]
) -> HeldOutLoss:
    """The training loss of the current weights on all held-out rows at once; nothing is learned from it."""
    assert run.held_out is not None
    if not isinstance(learner, Learner):
        raise ValueError("the loss on held-out rows needs a single process: leave out torchrun, or add held_out=none")
    tasks, engine = run.held_out.tasks, run.evaluator.start(policy)
    with closing(engine), running(engine, learner, learner.version):
        for index in range(len(tasks)):
            for sample in range(run.num_generations):
                engine.submit(
                    Request(group=index, task=tasks[index], sample=sample, sampling=run.sampling, seed=run.seed)
                )
        arrived = _drawn(engine)
    groups = [
        score(Group(index=i, task=tasks[i], episodes=tuple(found)), rewards) for i, found in arrived.items() if found
    ]
    kept = [group for group in groups if isinstance(group, Group)]
    if not kept:
        raise ValueError(
            "no held-out row has a written answer that counts; add others with held_out=FILE, or held_out=none"
        )
    method, models = learner.method, learner.models
    loss, shares = 0.0, list[float]()
    with torch.no_grad():
        batch, _ = method.prepare(models, pack(kept).to(models.device))
        batch, _ = method.survey(models, batch)
        tokens, whole = method.optimization.microbatch_tokens, method.whole_groups()
        for micro in learner.ranks.micro_batches(batch, tokens, policy=models.policy, whole_groups=whole):
            found = next(iter(method.losses(models, micro)))
            loss += float(found.value)
            shares += [found.metrics[PAIRS]] if PAIRS in found.metrics else []
    return HeldOutLoss(loss=loss, accuracy=sum(shares) if shares else None)


def canary(run: AbstractRun, engine: AbstractEngine, task: Task) -> list[Rollout]:
    """The beginning of a few rollouts of one task, drawn before anything else is asked of the engine."""
    sampling = replace(run.sampling, max_length=min(CANARY_LENGTH, run.sampling.max_length))
    for number in range(CANARIES):
        sample = number % run.num_generations  # offline data has no more
        engine.submit(Request(group=-1 - number, task=task, sample=sample, sampling=sampling, seed=run.seed))
    return [finished.rollout for finished in drained(engine).values()]


def evaluate(
    engine: AbstractEngine,
    tasks: AbstractTasks,
    rewards: Sequence[AbstractReward],
    sampling: AbstractSampling,
    *,
    samples: int,
    seed: int,
) -> EvalResult:
    """Sample ``samples`` rollouts and one greedy one for every task with a freshly loaded engine, and score them."""
    assert engine.in_flight == 0, "an evaluation has the engine to itself"
    for index in range(len(tasks)):
        task = tasks[index]
        for sample in range(samples):
            engine.submit(Request(group=2 * index, task=task, sample=sample, sampling=sampling, seed=seed))
        # Its own group, so that it counts in no mean over samples.
        greedy = replace(sampling, temperature=0.0)
        engine.submit(Request(group=2 * index + 1, task=task, sample=0, sampling=greedy, seed=seed))
    arrived = _drawn(engine)
    groups = {
        index: Group(index=index, task=found[0].task, episodes=tuple(found))
        for index, found in arrived.items()
        if found
    }
    for index, group in groups.items():
        for sample, task in enumerate(follow_ups(group, rewards)):
            own = group.rollouts[0].sampling
            engine.submit(Request(group=index, task=task, sample=sample, sampling=own, seed=seed))
    for index, replies in _drawn(engine).items():
        groups[index] = answered(groups[index], [reply.text for reply in replies], rewards)
    scored: dict[str, list[list[tuple[float, bool]]]] = {SAMPLED: [], GREEDY: []}
    ballots: list[list[tuple[str | None, bool]]] = []  # of the samples of each task
    lengths: list[int] = []
    for index in arrived:
        outcome = score(groups[index], rewards) if index in groups else Drop("given_up")
        kept = () if isinstance(outcome, Drop) else outcome.rollouts
        values = [(rollout.earned, passed(rollout)) for rollout in kept] or [(0.0, False)] * len(arrived[index])
        if index % 2 == 0:
            cast = [(_answer(rollout, rewards), passed(rollout)) for rollout in kept]
            ballots.append(cast + [(None, False)] * (samples - len(cast)))
        # Dropped and broken rollouts, and answers that no reward applies to, solve nothing but stay in the denominator.
        lost = (1 if index % 2 else samples) - len(arrived[index])
        scored[GREEDY if index % 2 else SAMPLED].append(values + [(0.0, False)] * lost)
        lengths += [episode.length for episode in arrived[index] if index % 2 == 0]
    greedy_scores = [values[0][0] for values in scored[GREEDY]]
    ks = [k for k in KS if k <= samples] if rewards else []
    solved = [sum(passes for _, passes in values) for values in scored[SAMPLED]]
    return EvalResult(
        tasks=len(tasks),
        score=float(np.mean([value for values in scored[SAMPLED] for value, _ in values])),
        greedy_score=float(np.mean(greedy_scores)),
        length=float(np.mean(lengths)) if lengths else math.nan,  # of none that was left
        pass_at={k: float(np.mean([pass_at_k(samples, c, k) for c in solved])) for k in ks},
        vote_at=voted(ballots, [k for k in ks if k > 1]),
        greedy=float(np.mean([values[0][1] for values in scored[GREEDY]])) if rewards else None,
        by_source=_by_source(tasks, scored[SAMPLED], judged=bool(rewards)),
        shares=_shares(arrived) if isinstance(sampling, Sampling) else {},
        figures=of_all(rewards, [group for index, group in groups.items() if index % 2 == 0])
        | of_all(rewards, [group for index, group in groups.items() if index % 2], "greedy_"),
    )


examine = evaluate  # former name


def _shares(arrived: Mapping[int, Sequence[Episode]]) -> dict[str, float]:
    """Shares of the texts: empty samples, empty greedy answers, and samples that end at max_length."""
    sampled = [episode for index, found in arrived.items() if index % 2 == 0 for episode in found]
    greedy = [episode for index, found in arrived.items() if index % 2 for episode in found]
    shares = {"empty_frac": [not episode.text.strip() for episode in sampled]}
    shares["truncated_frac"] = [episode.stop == "length" for episode in sampled]
    shares["greedy_empty_frac"] = [not episode.text.strip() for episode in greedy]
    return {name: float(np.mean(found)) for name, found in shares.items() if found}


def _answer(rollout: Rollout, rewards: Sequence[AbstractReward]) -> str | None:
    """Its answer, by the first reward that can extract one."""
    return next((found for reward in rewards if (found := reward.answer(rollout.text)) is not None), None)


def voted(ballots: Sequence[Sequence[tuple[str | None, bool]]], ks: Sequence[int]) -> dict[int, float]:
    """maj@k: the mean, over tasks and over each k consecutive samples, of whether the most common answer (ties: the first seen) solves
    the task. ``ballots``: for each task, each sample's answer and whether it is correct. {} if nothing was answered."""
    if not any(answer is not None for votes in ballots for answer, _ in votes):
        return {}

    def solves(votes: Sequence[tuple[str | None, bool]]) -> bool:
        chosen = majority([answer for answer, _ in votes])
        return chosen is not None and next(right for answer, right in votes if answer == chosen)

    found = {k: [votes[i : i + k] for votes in ballots for i in range(0, len(votes) - k + 1, k)] for k in ks}
    return {k: float(np.mean([solves(block) for block in blocks])) for k, blocks in found.items()}


def _by_source(
    tasks: AbstractTasks, scored: Sequence[Sequence[tuple[float, bool]]], *, judged: bool
) -> dict[str, float]:
    """The mean over the tasks of each source: of the share of samples that solve a task where rewards judge, else of the score."""
    found: dict[str, list[float]] = {source: [] for source in tasks.sources}
    for index, values in enumerate(scored) if found else ():
        source = tasks[index].source
        if source in found:  # a row without one is in the figures of all
            found[source].append(float(np.mean([value[judged] for value in values])))
    return {source: float(np.mean(values)) for source, values in found.items() if values}


def _drawn(engine: AbstractEngine) -> dict[int, list[Episode]]:
    """Everything in flight, drawn to its end: the episodes of each group by sample, in the order of groups."""
    arrived: dict[int, list[Episode]] = defaultdict(list)
    for (group, _), finished in sorted(drained(engine).items()):
        outcome = finished.outcome
        arrived[group] += [outcome] if isinstance(outcome, Episode) and not outcome.error else []
    return dict(arrived)
