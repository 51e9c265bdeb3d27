"""The evaluation: held-out tasks, sampled and greedy, scored by the run's own rewards."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from gimbal.dataflow.packing import pack
from gimbal.engines.base import AbstractEngine, Needed, Request, drained
from gimbal.engines.live_episode import COST, SUCCESS
from gimbal.environments.base import AbstractTasks
from gimbal.learning.base import AbstractLearner, AbstractTrained, OfPolicy
from gimbal.learning.learner import Learner
from gimbal.learning.weight_sync.proof import DeliveryProof
from gimbal.learning.weight_sync.receipts import running
from gimbal.ops.estimators import pass_at_k
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import Sampling
from gimbal.records import AbstractSampling, Drop, Episode, Group, Rollout
from gimbal.report.metrics import passed
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.function import Function
from gimbal.rewards.majority import majority
from gimbal.rewards.scoring import UNSCORED, answered, decided, follow_ups, measured, of_all, score, unmeasured
from gimbal.runtime.run import KS, AbstractRun
from gimbal.workflows.demonstrated import Demonstrated

CANARIES = 3  # rollouts for the proof of delivery ...
CANARY_LENGTH = 64  # ... most decisions in each ...
CANARY_TASKS = 8  # ... and tasks that are tried
BLOCKS, FEWEST = (
    32,
    8,
)  # parts of held-out written answers whose losses are told apart, and from how many their spread is known
PAIRS = "pair/accuracy"  # the name in a pair loss


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Figures of one evaluation, each a mean over tasks; ``greedy_score`` is for the greedy rollout.

    A rollout that failed (its environment, tool or agent broke, or no reward gave it a number) is neither a success nor a 0: it is
    counted in ``failed`` by its reason, and is in no figure. A task of which fewer than k samples are left is not in pass@k. A figure
    of which nothing is left is NaN, and is absent from ``metrics()``.

    If rewards define a solved task (a score of 1), ``pass_at`` maps k to the unbiased pass@k of the samples and ``greedy``
    is the share solved greedily; ``vote_at`` maps k to maj@k, the share solved by the most common answer of k samples, if a
    reward extracts answers. They are empty and None if the environment's return is the score, or the first reward decides nothing.
    """

    tasks: int
    score: float  # NaN where every sample failed, and of pictures without a reward
    greedy_score: float
    length: float
    pass_at: dict[int, float]
    greedy: float | None
    # Share of tasks that the most common of k answers solves.
    vote_at: Mapping[int, float] = field(default_factory=dict)
    # Of texts that are empty or cut off; {} where none is written.
    shares: Mapping[str, float] = field(default_factory=dict)
    by_source: Mapping[str, float] = field(default_factory=dict)  # pass@1, else the score, of each source of the tasks
    by_task: Mapping[str, float] = field(default_factory=dict)  # and of each task, by its id
    # Of several sources: that and its greedy kin of the worst one; {} if every rollout of one failed.
    worst: Mapping[str, float] = field(default_factory=dict)
    # What rewards say of all samples together, and of all greedy ones.
    figures: Mapping[str, float] = field(default_factory=dict)
    # The standard error of a return, by its spread over tasks; None for a reward, or of one task.
    error: float | None = None
    rollouts: int = 0  # sampled and greedy, failed ones too
    failed: Mapping[str, int] = field(default_factory=dict)  # of these, by reason
    said: str = ""  # of the first that failed: its task, and what happened

    def metrics(self) -> dict[str, float]:
        figures = {"eval/score": self.score, "eval/greedy_score": self.greedy_score, "eval/length": self.length}
        figures |= {f"eval/pass@{k}": value for k, value in self.pass_at.items()}
        figures |= {f"eval/maj@{k}": value for k, value in self.vote_at.items()}
        figures |= {f"eval/{name}": value for name, value in (*self.shares.items(), *self.figures.items())}
        kind = "pass@1" if self.pass_at else "score"
        figures |= {f"eval/source/{source}/{kind}": value for source, value in self.by_source.items()}
        figures |= {f"eval/worst/{name}": value for name, value in self.worst.items()}
        figures |= {} if self.greedy is None else {"eval/greedy": self.greedy}
        figures |= {"eval/tasks": float(self.tasks)} | ({} if self.error is None else {"eval/score_error": self.error})
        if self.failed:
            figures |= {"eval/failed": float(sum(self.failed.values()))}
            figures |= {f"eval/failed/{reason}": float(count) for reason, count in self.failed.items()}
        return {name: value for name, value in figures.items() if not math.isnan(value)}

    def failures(self) -> str:
        """What failed, in one sentence; '' if nothing did."""
        if not self.failed:
            return ""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.failed.items())
        no_score = "; no score is left" if math.isnan(self.score) else ""
        first = f". The first was of task {self.said}" if self.said else ""
        count = f"{sum(self.failed.values())} of {self.rollouts}"
        return f"{count} held-out rollouts failed and are in no figure ({reasons}){no_score}{first}"


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
            DeliveryProof(source, canary(run, engine, held_out.tasks))(engine, version)
        paid, samples = bool(rewards) or run.policy.family.pays, held_out.samples
        return evaluate(engine, held_out.tasks, rewards, run.evaluated_by, samples=samples, seed=run.seed, paid=paid)


@dataclass(frozen=True, kw_only=True)
class HeldOutLoss:
    """The evaluation of supervised training: the run's loss on held-out rows, whose answers are written, not sampled.

    ``accuracy``: the share of pairs whose better answer the policy prefers more than the reference does; None without pairs.
    ``error``: the standard error of the loss, by its spread over parts of the rows; None of few.
    """

    loss: float
    accuracy: float | None
    error: float | None = None

    def metrics(self) -> dict[str, float]:
        figures = {"eval/loss": self.loss} | ({} if self.error is None else {"eval/loss_error": self.error})
        return figures if self.accuracy is None else figures | {"eval/pair/accuracy": self.accuracy}

    def failures(self) -> str:
        return ""  # rows are written: there is nothing that fails


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
                    Request(group=index, task=tasks[index], sample=sample, sampling=run.evaluated_by, seed=run.seed)
                )
        arrived, _ = _drawn(engine)
    groups = [
        score(Group(index=i, task=tasks[i], episodes=tuple(found)), rewards) for i, found in arrived.items() if found
    ]
    kept = [group for group in groups if isinstance(group, Group)]
    if not kept:
        raise ValueError(
            "no held-out row has a written answer that counts; add others with held_out=FILE, or held_out=none"
        )
    update, models = learner.update, learner.models
    parts, lengths, shares = list[float](), list[int](), list[float]()
    with torch.no_grad():
        batch, _ = update.prepare(models, pack(kept).to(models.device))
        batch, _ = update.survey(models, batch)
        # In parts, since the spread over them is the noise of their sum.
        assert batch.decisions is not None, "packed from rollouts"
        rows, width = models.policy.extent(batch.decisions)
        tokens = min(update.optimization.microbatch_tokens, math.ceil(rows * width / BLOCKS))
        whole = update.whole_groups()
        for micro in learner.ranks.micro_batches(batch, tokens, policy=models.policy, whole_groups=whole):
            found = next(iter(update.losses(models, micro)))
            parts.append(float(found.value))
            lengths.append(int(micro.mask_NS.sum()))
            shares += [found.metrics[PAIRS]] if PAIRS in found.metrics else []
    return HeldOutLoss(loss=sum(parts), accuracy=sum(shares) if shares else None, error=error_of(parts, lengths))


def error_of(parts: Sequence[float], lengths: Sequence[int]) -> float | None:
    """The standard error of sum(parts), each the part of some rows in a loss, by the jackknife: sqrt((n - 1) / n sum (r / (1 - h))^2),
    with r what is left of a part beside a straight line in the rows' length and h its leverage, so r / (1 - h) is what is left beside
    the line of the others. A mean over tokens has more of long rows, and the same rows are asked each time.

    - a loss that is the same at every token: 0.
    - fewer than ``FEWEST`` parts, or one whose length alone fixes the line: None, since their spread is not known.
    """
    if len(parts) < FEWEST:
        return None
    line_PX = np.stack([np.ones(len(parts)), np.asarray(lengths, float)], 1)
    fit_XP = np.linalg.pinv(line_PX)
    free_P = 1 - (line_PX * fit_XP.T).sum(1)
    if free_P.min() < 1e-6:
        return None
    left_P = (np.asarray(parts) - line_PX @ (fit_XP @ np.asarray(parts))) / free_P
    return math.sqrt((len(parts) - 1) / len(parts) * float(left_P @ left_P))


def canary(run: AbstractRun, engine: AbstractEngine, tasks: AbstractTasks) -> list[Rollout]:
    """The beginning of a few rollouts of one task, drawn before anything else is asked of the engine: of the first task whose rollouts
    do not fail, since an environment may fail at some. ``Needed`` where the first few all do."""
    sampling = replace(run.sampling, max_length=min(CANARY_LENGTH, run.sampling.max_length))
    failed: Needed | None = None
    for place in range(min(CANARY_TASKS, len(tasks))):
        for number in range(CANARIES):
            sample = number % run.num_generations  # offline data has no more
            engine.submit(
                Request(group=-1 - number, task=tasks[place], sample=sample, sampling=sampling, seed=run.seed)
            )
        try:
            return [finished.rollout for finished in drained(engine).values()]
        except Needed as error:
            failed = failed or error
    assert failed is not None, "a run has tasks"
    raise failed


def evaluate(
    engine: AbstractEngine,
    tasks: AbstractTasks,
    rewards: Sequence[AbstractReward],
    sampling: AbstractSampling,
    *,
    samples: int,
    seed: int,
    paid: bool = True,
) -> EvalResult:
    """Sample ``samples`` rollouts and one greedy one for every task with a freshly loaded engine, and score them, unless nothing pays.

    Rewards that go by the rest of a group are left out (``measured``); of others that only measure beside them, the first counts.
    """
    if said := unmeasured(rewards):
        raise ValueError(said)
    asked, rewards = rewards, measured(rewards)
    weights = [reward.weight for reward in rewards]
    if len(rewards) < len(asked) and rewards and not any(weights):
        weights[0] = 1.0
    assert engine.in_flight == 0, "an evaluation has the engine to itself"
    for index in range(len(tasks)):
        task = tasks[index]
        for sample in range(samples):
            engine.submit(Request(group=2 * index, task=task, sample=sample, sampling=sampling, seed=seed))
        # Its own group, so that it counts in no mean over samples.
        greedy = replace(sampling, temperature=0.0)
        engine.submit(Request(group=2 * index + 1, task=task, sample=0, sampling=greedy, seed=seed))
    arrived, lost = _drawn(engine)
    failed = Counter(drop.reason for _, drop in lost)
    said = next((f"{drop.task or tasks[i // 2].id}: {drop.said}" for i, drop in lost if drop.said), "")
    groups = {i: Group(index=i, task=found[0].task, episodes=tuple(found)) for i, found in arrived.items()}
    groups, unanswered = _replied(engine, groups, rewards, seed)
    failed["unanswered"] += unanswered
    kept = _kept(groups, rewards, weights, failed)
    sampled, greedily = (
        [[(one.earned, passed(one)) for one in kept.get(2 * index + way, ())] for index in range(len(tasks))]
        for way in (0, 1)
    )
    greedy = [one for each in greedily for one in each]
    # Of each task by itself: one whose samples failed more often must not count less.
    score_T = [float(np.mean([value for value, _ in values])) for values in sampled if values]
    judged = decided(rewards)
    ks = [k for k in KS if k <= samples] if judged else []
    counts = [(len(values), sum(passes for _, passes in values)) for values in sampled]
    pass_at = {k: _mean([pass_at_k(n, c, k) for n, c in counts if n >= k]) for k in ks}
    ballots = [[(_answer(one, asked), passed(one)) for one in kept.get(2 * i, ())] for i in range(len(tasks))]
    spread = not rewards and paid and len(score_T) > 1
    by_source, by_greedy = (_by_source(tasks, each, judged=judged) for each in (sampled, greedily))
    kinds = {"pass@1": by_source, "greedy": by_greedy} if pass_at else {"score": by_source, "greedy_score": by_greedy}
    return EvalResult(
        tasks=len(tasks),
        score=_mean(score_T) if paid else math.nan,
        greedy_score=_mean([value for value, _ in greedy]) if paid else math.nan,
        length=_mean([one.length for index, found in arrived.items() if index % 2 == 0 for one in found]),
        pass_at=pass_at,
        vote_at=voted(ballots, [k for k in ks if k > 1]),
        greedy=_mean([passes for _, passes in greedy]) if judged else None,
        by_source=by_source,
        by_task={tasks[i].id: float(np.mean([one[judged] for one in each])) for i, each in enumerate(sampled) if each},
        worst={name: min(each.values()) for name, each in kinds.items() if 1 < len(each) == len(tasks.sources)},
        shares=_shares(arrived) if isinstance(sampling, Sampling) else {},
        figures=of_all(rewards, [group for index, group in groups.items() if index % 2 == 0])
        | of_all(rewards, [group for index, group in groups.items() if index % 2], "greedy_")
        | _said(groups),
        error=float(np.std(score_T, ddof=1)) / math.sqrt(len(score_T)) if spread else None,
        rollouts=len(tasks) * (samples + 1),
        failed={reason: count for reason, count in failed.most_common() if count},
        said=said,
    )


def _kept(
    groups: Mapping[int, Group], rewards: Sequence[AbstractReward], weights: Sequence[float], failed: Counter[str]
) -> dict[int, Sequence[Episode]]:
    """The episodes of each group that have a score; ``failed`` counts the others."""
    compared = any(isinstance(reward, Function) and reward.of_groups for reward in rewards)
    kept: dict[int, Sequence[Episode]] = {}
    for index, group in groups.items():
        lost = Counter[str]()
        outcome = score(group, rewards, lost, weights)
        kept[index] = outcome.episodes if isinstance(outcome, Group) else ()
        if compared and index % 2:  # a greedy answer has none beside it to be compared with, which is no failure
            del lost[UNSCORED]
        failed.update(lost)
    return kept


def _mean(values: Sequence[float | int]) -> float:
    """NaN of none."""
    return float(np.mean(values)) if values else math.nan


def _replied(
    engine: AbstractEngine, groups: Mapping[int, Group], rewards: Sequence[AbstractReward], seed: int
) -> tuple[dict[int, Group], int]:
    """The groups with the policy's answers to what rewards ask about them, and how many rollouts are without theirs: a group of which
    one is missing leaves, because a reward would read another's answer in its place."""
    asked = {index: follow_ups(group, rewards) for index, group in groups.items()}
    for index, tasks in asked.items():
        own = groups[index].rollouts[0].sampling
        for sample, task in enumerate(tasks):
            engine.submit(Request(group=index, task=task, sample=sample, sampling=own, seed=seed))
    replies, _ = _drawn(engine)
    texts = {index: [reply.text for reply in replies.get(index, ())] for index in groups}
    whole = {index: group for index, group in groups.items() if len(texts[index]) == len(asked[index])}
    unanswered = sum(len(group.episodes) for index, group in groups.items() if index not in whole)
    told = {i: answered(group, texts[i], rewards) if texts[i] else group for i, group in whole.items()}
    return told, unanswered


def _said(groups: Mapping[int, Group]) -> dict[str, float]:
    """The share of episodes that ended with their goal reached, and what an episode cost, sampled and greedy, where environments say
    so."""
    found: dict[str, list[float]] = {}
    for index, group in groups.items():
        for own in (SUCCESS, COST):
            name = f"greedy_{own}" if index % 2 else own
            found.setdefault(name, []).extend(e.scores[own] for e in group.episodes if own in e.scores)
    return {name: float(np.mean(said)) for name, said in found.items() if said}


def _shares(arrived: Mapping[int, Sequence[Episode]]) -> dict[str, float]:
    """Shares of the texts: empty samples, empty greedy answers, and samples that end at max_length."""
    sampled = [episode for index, found in arrived.items() if index % 2 == 0 for episode in found]
    greedy = [episode for index, found in arrived.items() if index % 2 for episode in found]
    shares = {"empty_frac": [not episode.text.strip() for episode in sampled]}
    shares["truncated_frac"] = [episode.stop == "length" for episode in sampled]
    shares["greedy_empty_frac"] = [not episode.text.strip() for episode in greedy]
    return {name: float(np.mean(found)) for name, found in shares.items() if found}


def _answer(episode: Episode, rewards: Sequence[AbstractReward]) -> str | None:
    """Its answer, by the first reward that can extract one."""
    return next((found for reward in rewards if (found := reward.answer(episode.text)) is not None), None)


def voted(ballots: Sequence[Sequence[tuple[str | None, bool]]], ks: Sequence[int]) -> dict[int, float]:
    """maj@k: the mean, over tasks and over each k consecutive samples, of whether the most common answer (ties: the first seen) solves
    the task. ``ballots``: for each task, each sample's answer and whether it is correct. {} if nothing was answered."""
    if not any(answer is not None for votes in ballots for answer, _ in votes):
        return {}

    def solves(votes: Sequence[tuple[str | None, bool]]) -> bool:
        chosen = majority([answer for answer, _ in votes])
        return chosen is not None and next(right for answer, right in votes if answer == chosen)

    found = {k: [votes[i : i + k] for votes in ballots for i in range(0, len(votes) - k + 1, k)] for k in ks}
    return {k: float(np.mean([solves(block) for block in blocks])) for k, blocks in found.items() if blocks}


def _by_source(
    tasks: AbstractTasks, scored: Sequence[Sequence[tuple[float, bool]]], *, judged: bool
) -> dict[str, float]:
    """The mean over the tasks of each source: of the share of samples that solve a task where rewards judge, else of the score."""
    found: dict[str, list[float]] = {source: [] for source in tasks.sources}
    for index, values in enumerate(scored) if found else ():
        source = tasks[index].source
        if source in found and values:  # a row without one is in the figures of all
            found[source].append(float(np.mean([value[judged] for value in values])))
    return {source: float(np.mean(values)) for source, values in found.items() if values}


def _drawn(engine: AbstractEngine) -> tuple[dict[int, list[Episode]], list[tuple[int, Drop]]]:
    """Everything in flight, drawn to its end: the episodes of each group by sample, in order; and what failed, by group."""
    arrived, lost = dict[int, list[Episode]](), list[tuple[int, Drop]]()
    for (group, _), finished in sorted(drained(engine).items()):
        outcome = finished.settled
        if isinstance(outcome, Episode):
            arrived.setdefault(group, []).append(outcome)
        else:
            lost.append((group, outcome))
    return arrived, lost
