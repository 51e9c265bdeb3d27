"""Which rollout-control method reaches a pass rate with fewer generated tokens, and in less time, than plain GRPO.

**Setting.** ``gimbal-tiny`` on chain_sum, in three finite sets of tasks, each the same for every arm: *spread*, 256 tasks of 2 to 6
terms of two digits (.14 of the first policy's answers are right); *again*, 64 of the same kind, which come again about three times;
and *sparse*, 128 tasks of which 123 have 3 to 6 terms and end in a question mark, which ``gimbal-tiny`` has never seen there, and 5
are of the kind that it was made with (.045). Plain GRPO: steps of 8 tasks x 8 rollouts, groups normalised, means over tokens, one
update a batch on data of the same version, float32 sampler, constant learning rate. Generated tokens are all that the engine drew,
dropped groups and profiles included. A run ends at the first step after which they pass 36,000. Whenever they pass a quarter of
that, held-out pass@1 is measured (128 other tasks of the same kind, 2 samples each, 4 at the end); what the evaluation draws does
not count. Time is processor seconds of this process, one thread, without evaluations: other work on the machine hardly counts in
it.

**Arms.** Each is *plain* with the part changed that it is named after, at the settings of its recipe: *dynamic* (ZeroVariance with
refill), *vade*, *dps*, *paced*, *bands*, *retiring*, *greso* (with ZeroVariance, as published), *sgpo* (its profile counts), *dars*
(Deepened for normalised advantages, with ZeroVariance), *xrpo* (its allocator alone), *until_mixed* (4 to 16 rollouts, ZeroVariance),
*gdro* (the root law), *duet* (TokenPriced at 1500 tokens a step), *replay* (ARPO's Successes, weights cut at 2), *partial* (APRIL's:
the learner does not wait for rollouts under way, which go on with new weights; data up to one version old).

**Rule.** The target is .9 of the highest held-out pass@1 that a tuning run of *plain* ends with. Each arm runs at the best of three
rates (3e-5, 1e-4, 3e-4), by one tuning run each (seed 100): the one that gets to the target with the fewest tokens; of those that do
not, the one that ends highest; the smaller rate of equals. Then seeds 0 to 4. Tokens (seconds) to the target: where the line through
the start and the marks first crosses it. A run that does not get there needs more than it spent, and is worse than any that does. An
arm against *plain*: p of the exact test of Mann and Whitney on tokens to the target, and the ratio of tokens (median of all 25
quotients, each run that did not get there with what it spent, and the exact 96.8 % interval: the third of the least that each quotient
can be, and the third of the most). Supported: p < 0.01 and fewer. Refuted: p < 0.01 and more, or the interval excludes a saving of a
tenth. Else undecided, which fewer than five seeds are as well. Idle, and no verdict: an arm that has the costs of *plain* to the token
in three seeds or more. Time is shown beside it by the same quotients. That a mechanism acts is shown by its own figure too.

**The rule was changed twice.** After the first six tuning runs (thrown away): rates went by the mean over the marks, and marks had half
the samples. After 202 runs, when a sceptic had shown what was wrong: rates went by pass@1 at the end, which let *plain* run at 1e-4
where it needs two and a half times the tokens that it does at 3e-4, so that *dynamic* and *greso* seemed to save; runs that did not get
there counted with what they spent, so that quotients of two such runs refuted; and *retiring*, which was *plain* to the token, was
undecided. Runs at the rates of that rule stay in the record, and count for nothing.

The two sets and the budget come from a few runs that are not recorded. After the first 32 of *spread*, *again* was added and *sparse*
made smaller: the budget buys 180 tasks of plain GRPO, so of 256 hardly one comes again, and *greso* did to the number what
*dynamic* does (two runs, thrown away). Arms that go by a task's past are asked on *again*.

**Sparse was made anew.** Its first form (64 tasks of 4 to 8 terms) could decide nothing: *plain* did not rise above its start
within the budget, so that the target lay below the start. Its 14 runs were thrown away. The new one comes from a dozen pilot runs
of *plain*, seeds 100 to 102, that are not recorded: at a start below .05 it is mostly chance whether a run rises within the budget;
with the few usual tasks both pilot runs of this form did (3e-4, to .26 after 28,000 tokens). There the target is the start and half
of what *plain*'s best tuning run gains; if that gains less than .1, the set decides nothing. A run that does not rise is an outcome
like any other. Arms go one after the other, those of most interest first. With it came *arrol* (Pruning, 16 rollouts, its recipe's
settings), *latr* (Lookahead, its recipe's settings without the KL) and *prompt_gdro* (Adversarial, Emphasised). Written before the
runs of the new *sparse* and of these three arms.

    python claims/tokens.py --processes 2       # goes on from claims/tokens.json; the whole takes over an hour of two idle cores
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal.advantages.shapings.emphasised import COLUMN, Emphasised
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.shadow_priced import ShadowPriced
from gimbal.dataflow.budgets.token_priced import TokenPriced
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.adversarial import Adversarial
from gimbal.dataflow.curricula.banded import Banded
from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.dataflow.curricula.profiled import Profiled
from gimbal.dataflow.curricula.retiring import Retiring
from gimbal.dataflow.curricula.skipping import Skipping
from gimbal.dataflow.curricula.state_predicted import StatePredicted
from gimbal.dataflow.curricula.variance_sampled import VarianceSampled
from gimbal.dataflow.filters.profile_only import ProfileOnly
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.replay.successes import Successes
from gimbal.engines.base import AbstractEngineSpec, Request, drained
from gimbal.engines.native import Native
from gimbal.environments.base import AbstractTasks
from gimbal.environments.demonstrations import CHAIN_SUM, held_out_tasks, training_tasks
from gimbal.environments.mixture import Mixed
from gimbal.environments.reasoning import ReasoningGym
from gimbal.learning.learner import NotFinite
from gimbal.objectives import TruncatedWeight
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.exploration.latr import FADING
from gimbal.records import Episode, Group
from gimbal.report.metrics import passed
from gimbal.report.statistics import permutation_p
from gimbal.rewards.expected import Expected
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.scoring import score
from gimbal.runtime.local import Trainer
from gimbal.runtime.pipeline import Starved
from gimbal.runtime.run import Run
from gimbal.workflows.lookahead import Lookahead
from gimbal.workflows.pruning import Pruning

RECORD = Path(__file__).with_suffix(".json")
RATES, TUNING, SEEDS, P = (3e-5, 1e-4, 3e-4), 100, (0, 1, 2, 3, 4), 0.01
BUDGET, MARKS, SHARE = 36_000, 4, 0.9  # tokens; evaluations; of what plain ends with
HALF, LEAST_GAIN = 0.5, 0.1  # of what plain gains, and what it must gain for a verdict, on *sparse*
MOST_STEPS = 400  # no run comes near it
VERDICTS = ("supported", "refuted", "undecided", "idle")
DUET = 1500  # tokens a step, three quarters of what plain spends

Change = Callable[[Run], Run]


def part(**changes: Any) -> Change:
    return lambda run: replace(run, **changes)


@dataclass(frozen=True)
class Arm:
    """What it changes of plain GRPO, and the metric that shows its mechanism at work."""

    change: Change
    shown: str


FULL = (ZeroVariance(),)
ARMS: Mapping[str, Arm] = {
    "plain": Arm(part(), "signal/groups_per_1000"),
    "dynamic": Arm(part(filters=FULL), "drops/zero_variance"),
    "until_mixed": Arm(
        part(num_generations=16, budget=UntilMixed(name="reasoning"), filters=FULL), "budget/UntilMixed/size"
    ),
    "vade": Arm(part(curriculum=VarianceSampled(name="reasoning")), "curriculum/VarianceSampled/score"),
    "dps": Arm(part(curriculum=StatePredicted(name="reasoning")), "curriculum/StatePredicted/score"),
    "greso": Arm(part(curriculum=Skipping(name="reasoning"), filters=FULL), "curriculum/Skipping/skipped"),
    "paced": Arm(part(curriculum=Frontier(name="reasoning")), "curriculum/Frontier/score"),
    "replay": Arm(part(store=Successes(least=0.9), correction=TruncatedWeight(cap=2.0)), "replay/used"),
    "bands": Arm(part(curriculum=Banded(name="reasoning")), "curriculum/Banded/band_0"),
    "retiring": Arm(part(curriculum=Retiring(name="reasoning")), "curriculum/Retiring/resting"),
    "dars": Arm(part(budget=Deepened(name="reasoning", scaled=True), filters=FULL), "budget/Deepened/largest"),
    "xrpo": Arm(part(budget=IntervalShared(name="reasoning")), "budget/IntervalShared/largest"),
    "gdro": Arm(part(budget=ShadowPriced(name="reasoning")), "budget/ShadowPriced/largest"),
    "duet": Arm(part(budget=TokenPriced(name="reasoning", tokens=DUET)), "budget/TokenPriced/price"),
    "sgpo": Arm(
        part(max_empty_batches=80, curriculum=Profiled(name="reasoning"), filters=(ProfileOnly(),)), "drops/profile"
    ),
    "partial": Arm(part(max_staleness=1), "staleness/max"),
    "arrol": Arm(
        part(num_generations=16, workflow=Pruning(at=8, warm_up=3, reward=ReasoningScore())), "drops/rollouts/pruned"
    ),
    "latr": Arm(
        part(
            engine=Native(slots=64, precision="float32", rivals=True),
            workflow=Lookahead(shares=FADING, ages=(2, 4), longest=8),
        ),
        "perf/tree_sampler",
    ),
    "prompt_gdro": Arm(
        part(
            curriculum=Adversarial(name="reasoning"),
            rewards=(ReasoningScore(), Expected(column=COLUMN, name=COLUMN, weight=0.0)),
            shaping=(Emphasised(),),
        ),
        "curriculum/Adversarial/largest",
    ),
}
KINDS: Mapping[str, Mapping[str, int]] = {
    "spread": {"min_terms": 2, "max_terms": 6, "min_digits": 2, "max_digits": 2},
    "again": {"min_terms": 2, "max_terms": 6, "min_digits": 2, "max_digits": 2},
    "sparse": {"min_terms": 3, "max_terms": 6, "min_digits": 2, "max_digits": 2},
}
SIZES = {"spread": 256, "again": 64, "sparse": 128}
EASY = 5  # of *sparse*, of the kind that gimbal-tiny was made with
START = {"spread": 0.14, "again": 0.14, "sparse": 0.045}  # of the first policy's answers to 512 such questions


@dataclass(frozen=True)
class Job:
    kind: str
    arm: str
    rate: float
    seed: int


def held_out(kind: str) -> AbstractTasks:
    return asked(held_out_tasks(size=128), kind)


def asked(tasks: ReasoningGym, kind: str, *apart: ReasoningGym) -> AbstractTasks:
    """As many tasks of a kind, none of which asks what one of ``apart`` does."""
    whole = replace(tasks, parameters=KINDS[kind], exclude=replace(apart[0], parameters=KINDS[kind]) if apart else None)
    if kind != "sparse":
        return whole
    easy = replace(whole, parameters=dict(CHAIN_SUM), seed=tasks.seed + 1, size=EASY)
    easy = replace(
        easy, exclude=replace(apart[0], parameters=dict(CHAIN_SUM), seed=apart[0].seed + 1) if apart else None
    )
    return Mixed(sets=(replace(whole, size=tasks.size - EASY, suffix="?\n"), easy), names=("strange", "usual"))


def run_of(job: Job) -> Run:
    base = grpo()
    plain = replace(
        base,
        tasks=asked(training_tasks(size=SIZES[job.kind]), job.kind, held_out_tasks(size=128)),
        held_out=None,
        sampling=Sampling(max_length=80),
        engine=Native(slots=64, precision="float32"),
        prompts_per_step=8,
        num_generations=8,
        max_staleness=0,
        aggregation=TokenMean(),
        optimization=replace(base.optimization, learning_rate=job.rate),
        steps=MOST_STEPS,
        seed=job.seed,
        threads=1,
    )
    return ARMS[job.arm].change(plain)


def measure(job: Job) -> dict[str, Any]:
    """One run: (tokens, seconds, held-out pass@1) at its start and at each mark, and whether its mechanism acted."""
    trainer = Trainer(run_of(job))
    shown, ended, spent = [], "", 0.0
    try:
        trainer.begin()
        marks, drawn = [(0, 0.0, START[job.kind])], 0.0
        while drawn < BUDGET:
            begin = time.process_time()
            metrics, _, _ = trainer.advance()
            spent, drawn = spent + time.process_time() - begin, metrics["tokens"]
            if ARMS[job.arm].shown in metrics:
                shown.append(metrics[ARMS[job.arm].shown])
            if drawn >= len(marks) * BUDGET / MARKS:
                due = int(drawn * MARKS // BUDGET)
                found = evaluated(trainer, job.kind, 4 if due >= MARKS else 2)
                # A step that passes several marks at once (a profile) is evaluated once, for all of them.
                marks += [(int(drawn), round(spent, 2), found)] * (min(due, MARKS) + 1 - len(marks))
    except (NotFinite, Starved) as error:
        ended = str(error).partition(";")[0]
        marks += [(BUDGET, round(spent, 2), 0.0)] * (MARKS + 1 - len(marks))
    finally:
        trainer.close()
    return {
        **asdict(job),
        "marks": marks,
        "steps": trainer.learner.version,
        "groups": trainer.pipeline.bought["groups"],
        "trained": trainer.pipeline.bought["trained"],
        "shown": [float(f"{value:.3g}") for value in (min(shown), statistics.fmean(shown), max(shown))]
        if shown
        else [],
        "ended": ended,
    }


def evaluated(trainer: Trainer, kind: str, samples: int) -> float:
    return pass_rate(trainer, held_out(kind), Native(slots=128, precision="float32"), samples)


def pass_rate(trainer: Trainer, tasks: AbstractTasks, spec: AbstractEngineSpec, samples: int) -> float:
    """Held-out pass@1 of the present weights."""
    engine, run = spec.start(trainer.policy), trainer.run
    engine.load(trainer.learner.version, trainer.learner.policy.state_dict())
    for index in range(len(tasks)):
        for sample in range(samples):
            task = tasks[index]
            engine.submit(Request(group=index, task=task, sample=sample, sampling=run.sampling, seed=run.seed))
    right = 0
    for (index, _), finished in sorted(drained(engine).items()):
        assert isinstance(finished.outcome, Episode)
        judged = score(Group(index=index, task=tasks[index], episodes=(finished.outcome,)), trainer.rewards)
        right += isinstance(judged, Group) and passed(judged.rollouts[0])
    return right / (len(tasks) * samples)


def at_marks(trainer: Trainer, budget: int, count: int, told: Callable[[Mapping[str, float]], None]) -> dict[str, Any]:
    """Trains until ``budget`` tokens are drawn. Held-out pass@1 of the demo's tasks (128, 2 samples each) at each of ``count`` equal
    parts of them, its mean and its last; a run that ends early has 0 from there on. ``told`` of the metrics of each step."""
    marks, ended = list[float](), ""
    try:
        while len(marks) < count:
            metrics, *_ = trainer.advance()
            told(metrics)
            while len(marks) < count and metrics["tokens"] >= (len(marks) + 1) * budget / count:
                engine = Native(slots=128, precision="float32")
                marks.append(pass_rate(trainer, held_out_tasks(size=128), engine, 2))
    except NotFinite as error:
        ended = str(error).partition(";")[0]
        marks += [0.0] * (count - len(marks))
    finally:
        trainer.close()
    return {"mean": round(statistics.fmean(marks), 4), "end": round(marks[-1], 4), "marks": marks, "ended": ended}


def of(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> list[Mapping[str, Any]]:
    return [run for run in runs if (run["kind"], run["arm"]) == (kind, arm)]


def tuning(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> dict[float, Mapping[str, Any]]:
    """Learning rate -> its tuning run, in order of rates."""
    tried = {run["rate"]: run for run in of(runs, kind, arm) if run["seed"] == TUNING}
    return dict(sorted(tried.items()))


def best(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> float | None:
    """The best learning rate, once all of them have been tried."""
    tried, wanted = tuning(runs, kind, arm), target(runs, kind)
    if len(tried) < len(RATES) or wanted is None:
        return None
    ends = {rate: (cost(run, wanted).rank, -run["marks"][-1][2]) for rate, run in tried.items()}
    return min(ends, key=lambda rate: ends[rate])


def fresh(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> list[Mapping[str, Any]]:
    """The runs of the fresh seeds at the best rate, in the order of seeds."""
    rate = best(runs, kind, arm)
    return [] if rate is None else at(runs, kind, arm, rate)


def at(runs: Sequence[Mapping[str, Any]], kind: str, arm: str, rate: float) -> list[Mapping[str, Any]]:
    """The runs of fresh seeds at this rate, whether it was chosen or not, in the order of seeds."""
    own = [run for run in of(runs, kind, arm) if run["rate"] == rate and run["seed"] in SEEDS]
    return sorted(own, key=lambda run: run["seed"])


def target(runs: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    tried = tuning(runs, kind, "plain")
    if len(tried) < len(RATES):
        return None
    end = max(run["marks"][-1][2] for run in tried.values())
    if kind != "sparse":
        return SHARE * end
    gain = end - START[kind]
    return START[kind] + HALF * gain if gain >= LEAST_GAIN else None


@dataclass(frozen=True)
class Cost:
    """To the target, or what was spent if the run did not get there: then it needs more."""

    tokens: float
    seconds: float
    reached: bool

    @property
    def rank(self) -> float:
        return self.tokens if self.reached else np.inf


def cost(run: Mapping[str, Any], wanted: float) -> Cost:
    marks = run["marks"]
    for (tokens, seconds, low), (later, after, high) in itertools.pairwise(marks):
        if high >= wanted:
            share = (wanted - low) / (high - low) if high > low else 0.0
            share = max(0.0, share)  # the first policy may be there already
            return Cost(tokens + share * (later - tokens), seconds + share * (after - seconds), True)
    return Cost(float(marks[-1][0]), marks[-1][1], False)


def costs(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> list[Cost]:
    wanted = target(runs, kind)
    return [] if wanted is None else [cost(run, wanted) for run in fresh(runs, kind, arm)]


def quotient(one: Sequence[Cost], other: Sequence[Cost], name: str) -> tuple[float, float, float]:
    """The median of all 25 quotients of what was spent, and the third from either end of the least and the most that each can be:
    96.8 % by the test of Mann and Whitney."""
    assert len(one) == len(other) == len(SEEDS), (one, other)
    apart, least, most = [], [], []
    for x, y in itertools.product(one, other):
        apart.append(vars(x)[name] / vars(y)[name])
        least.append(apart[-1] if y.reached else 0.0)
        most.append(apart[-1] if x.reached else np.inf)
    return statistics.median(apart), sorted(least)[2], sorted(most)[-3]


@dataclass(frozen=True)
class Compared:
    tokens: tuple[float, float, float]
    seconds: tuple[float, float, float]
    p: float
    verdict: str


def compared(runs: Sequence[Mapping[str, Any]], kind: str, arm: str) -> Compared | None:
    """An arm against plain GRPO by the rule, once both have all their seeds."""
    own, plain = costs(runs, kind, arm), costs(runs, kind, "plain")
    if len(own) < len(SEEDS) or len(plain) < len(SEEDS):
        return None
    ranks = [np.array([one.rank for one in those])[:, None] for those in (own, plain)]
    p = permutation_p(*ranks, np.random.default_rng(0))
    tokens, seconds = (quotient(own, plain, name) for name in ("tokens", "seconds"))
    if sum(one.tokens == other.tokens for one, other in zip(own, plain, strict=True)) > len(SEEDS) // 2:
        return Compared(tokens, seconds, p, "idle")
    fewer = statistics.median(ranks[0][:, 0]) < statistics.median(ranks[1][:, 0])
    if p < P and fewer:
        return Compared(tokens, seconds, p, "supported")
    return Compared(tokens, seconds, p, "refuted" if p < P or tokens[1] > 0.9 else "undecided")


SPARSE = (
    "plain",
    "dynamic",
    "vade",
    "dps",
    "greso",
    "replay",
    "arrol",
    "dars",
    "until_mixed",
    "gdro",
    "paced",
    "sgpo",
    "duet",
    "bands",
    "xrpo",
    "retiring",
    "partial",
    "latr",
    "prompt_gdro",
)  # in the order of interest
STAGES = (
    ("spread", ("plain", "dynamic", "until_mixed", "vade")),
    ("again", ("plain", "vade", "paced", "greso")),
    ("again", ("replay", "dynamic", "dps", "gdro")),
    ("again", ("retiring", "bands", "duet", "sgpo")),
    ("spread", ("dars", "xrpo", "partial")),
    *(("sparse", (arm,)) for arm in SPARSE),
    ("again", ("prompt_gdro",)),
    ("spread", ("arrol", "latr")),
)


def whole() -> int:
    return sum(len(arms) * (len(RATES) + len(SEEDS)) for _, arms in STAGES)


def counted(runs: Sequence[Mapping[str, Any]]) -> int:
    """The recorded runs that the rule goes by."""
    asked = [(kind, arm) for kind, arms in STAGES for arm in arms]
    return sum(len(tuning(runs, kind, arm)) + len(fresh(runs, kind, arm)) for kind, arm in asked)


def left(runs: Sequence[Mapping[str, Any]]) -> Iterator[list[Job]]:
    """What remains to be run, in parts of which each needs the ones before; ``runs`` grows meanwhile."""
    for kind, arms in STAGES:
        yield _undone(runs, [Job(kind, arm, rate, TUNING) for arm in arms for rate in RATES])
        rates = {arm: best(runs, kind, arm) for arm in arms}
        yield _undone(runs, [Job(kind, arm, rate, seed) for seed in SEEDS for arm, rate in rates.items() if rate])


def _undone(runs: Sequence[Mapping[str, Any]], jobs: Sequence[Job]) -> list[Job]:
    done = {Job(run["kind"], run["arm"], run["rate"], run["seed"]) for run in runs}
    return [job for job in jobs if job not in done]


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    return campaign.load(path)


def told(found: Mapping[str, Any]) -> str:
    scores = " ".join(f"{value:.2f}" for _, _, value in found["marks"])
    return f"{found['kind']} {found['arm']} {found['rate']} {found['seed']} {scores} {found['shown']}"


def main() -> None:
    campaign.campaign(__doc__, RECORD, left, measure, told)


if __name__ == "__main__":
    main()
