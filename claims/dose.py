"""What stale data and a coarse sampler cost, which correction helps, and what a price on discrepancy does; each arm at its best rate.

**Setting.** ``gimbal-tiny`` on chain_sum, 24 steps of 8 tasks x 8 rollouts, constant learning rate, groups normalised, means over
tokens. All arms of a question differ in the one thing that they are named after. The score is held-out pass@1 *in the sampler*
after the last step (256 tasks, 4 samples; before training it is 0.36).

**Question age.** Data of exactly 0, 1, 4 or 16 versions (``ahead="full"``) from the step of that number on, sampled in float32, so that
age is all there is; before that step all data is the first policy's, at age 16 in two thirds of the 24 steps. Arms:
*plain*, one update a batch, so that the ratio to the recomputed policy is 1 and no clip can act; *clip*, PPO's clip (0.2) around
the policy recomputed before 4 updates; *sampler*, the same clip around the sampler's own probabilities; *decoupled*, clip around
the recomputed policy and the weight exp(proximal - behavior) of each token, which counts 0 above 5 (AReaL: 4 updates, mean over
tokens); *truncated*, the same with the weight cut at 2 (TIS, FlashRL). On fresh data all but *plain* are *clip*. *plain* differs from
*clip* in its updates and in a clip that acts; two arms tell these apart: *unclipped*, 4 updates with the clip off; *weighted*, one
update with the weight of *decoupled*.

**Question gap.** A sampler with int4 weights at the trainer's own version, *clip* beside it with a price (DCMDP): A' = A - strength
x |p - p'| of the *token*, or of the whole *rollout* (the sum over its tokens, less the group's mean). The multiplier starts at the
published 0.1 and its limit, 0.002, is below the measured mean. It moves by 10 times the excess each step; published is 1, over
hundreds of steps, which would leave it where it starts within 24.

**Question price.** The int4 sampler again, at age 4: what the token's price is measured against (nothing, the present policy, the
version that sampled) crossed with what the clip is anchored to (the present policy, the version that sampled).

**Rule.** Each arm is tuned at each dose: one run (seed 100; 96 tasks) at each of 4 learning rates, then 5 fresh seeds (0 to 4) at the
best of them. A run collapsed if it ends below the 0.36 it began with. The largest stable rate is the largest up to which no tuning
run collapsed. Two arms differ if an exact permutation test of their 5 and 5 scores gives p < 0.01, that is if every run of one ends
above every run of the other. A mechanism that did not act (clip share 0, nothing above the cap, a multiplier that stays or ends at
0) decides nothing. Stages are run in the order of ``STAGES``, each seed by seed, until they are done or the time is over; the page
says how many of how many, and an arm without all of its seeds has no verdict.

**Limits.** *plain* and *weighted* take 24 updates, the others 96. One thing alone, and the best rate for it, differs between *plain*
and *weighted*, and between *clip* and each of *unclipped*, *sampler*, *decoupled* and *truncated*. A best rate goes by one run; where
two rates are within 0.05 of one another, another seed may choose the other. The tuning runs' 96 tasks are among the evaluation's
256. 24 steps do not tell a slow run from a lost one. Two arms without a verdict are not shown to be equal: the interval says how
large a difference may be missed.

Written before the first run, after a pilot of 10 runs at ages 0 and 4 (40 steps, seed 100), which chose the number of steps. The
order of stages was changed four times, because runs took three times as long as planned and longer: when only the tuning of age 0
had been seen, when ages 0 and 4 had, when all but the last four stages had (age 16 first among them), and when the tuning of age 16
and a fresh seed of *plain* and *clip* had (*clip* and *decoupled* first). *unclipped* and *weighted* were added when ages 0, 1 and 4
of *plain* and *clip* had been seen. The fresh seeds at 1e-4 of three arms of *price* were added when a tuning run of one of them had
collapsed there: they test that run, not what the arms can do.

    python claims/dose.py         # goes on from claims/dose.json; the whole takes an hour and a half of one idle core
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gimbal import ops
from gimbal.advantages import DiscrepancyPenalty
from gimbal.advantages.base import AbstractAdvantage
from gimbal.controllers import Lagrangian
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import held_out_tasks
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.base import AbstractAnchor, Evaluate
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives import ClippedRatio, MaskedWeight, TruncatedWeight
from gimbal.objectives.base import AbstractCorrection
from gimbal.ops import TokenMean
from gimbal.policies.base import AbstractPolicy
from gimbal.recipes.core.grpo import grpo
from gimbal.records import TrainBatch
from gimbal.report.statistics import permutation_p
from gimbal.runtime.evaluate import evaluate
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
KEY = ("question", "arm", "age", "rate", "seed")
STEPS, PROMPTS, GROUP, UPDATES = 24, 8, 8, 4
RATES, TUNING, SEEDS = (1e-5, 3e-5, 1e-4, 3e-4), 100, tuple(range(5))
BEFORE, P = 0.36, 0.01
LIMIT, MULTIPLIER_RATE = 0.002, 10.0


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to learn: updates a batch, what the clip is anchored to, the weight, and the price with what it is measured against."""

    says: str
    updates: int = UPDATES
    clips: bool = True
    clip: str = "present"  # the policy before the update; or sampler, or version: the policy that sampled, as the trainer has it
    weight: AbstractCorrection | None = None
    price: str = ""  # token or rollout
    against: str = "present"


AGE = {
    "plain": Arm(says="no correction, one update", updates=1),
    "clip": Arm(says="clip around the recomputed policy"),
    "sampler": Arm(says="clip around the sampler", clip="sampler"),
    "decoupled": Arm(says="recomputed clip + weight, dropped above 5", weight=MaskedWeight(low=0.0, high=5.0)),
    "truncated": Arm(says="recomputed clip + weight, cut at 2", weight=TruncatedWeight(cap=2.0)),
    "unclipped": Arm(says="no correction, 4 updates", clips=False),
    "weighted": Arm(says="weight, dropped above 5, one update", updates=1, weight=MaskedWeight(low=0.0, high=5.0)),
}
GAP = {
    "clip": Arm(says="no price"),
    "token": Arm(says="price of the token", price="token"),
    "rollout": Arm(says="price of the rollout", price="rollout"),
}
PRICE = {
    f"{against or 'none'}-{clip}": Arm(
        says=(f"price against the {against}" if against else "no price") + f", clip around the {clip}",
        clip=clip,
        price="token" if against else "",
        against=against,
    )
    for against in ("", "present", "version")
    for clip in ("present", "version")
}
QUESTIONS: Mapping[str, Mapping[str, Arm]] = {"age": AGE, "gap": GAP, "price": PRICE}


@dataclass(frozen=True)
class Stage:
    """Arms at one age, each tuned and then run with fresh seeds; or with fresh seeds at a ``rate`` that need not be its best."""

    question: str
    age: int  # versions
    arms: tuple[str, ...]
    rate: float | None = None


# On fresh data sampled by the trainer's own weights every arm but *plain* is *clip*.
STAGES = (
    Stage("age", 0, ("plain", "clip")),
    Stage("age", 4, ("plain", "clip", "sampler", "decoupled")),
    Stage("age", 1, ("plain", "clip")),
    Stage("gap", 0, tuple(GAP)),
    Stage("price", 4, ("none-present", "present-present", "version-present")),
    Stage("age", 4, ("unclipped",)),
    Stage("age", 4, ("weighted",)),
    Stage("price", 4, ("none-present", "present-present", "version-present"), rate=1e-4),
    Stage("age", 16, ("clip", "decoupled")),
    Stage("age", 16, ("plain", "sampler")),
    Stage("age", 1, ("sampler", "decoupled")),
    Stage("age", 4, ("truncated",)),
    Stage("price", 4, ("none-version", "present-version", "version-version")),
)
CAPS = {"decoupled": 5.0, "truncated": 2.0, "weighted": 5.0}


@dataclass(frozen=True, kw_only=True)
class Price(AbstractAdvantage):
    """DiscrepancyPenalty against the fact ``priced_NS`` where the anchor gives it, of the token or of the whole rollout."""

    needs = frozenset({"advantage_NS", "proximal_NS", "behavior_NS"})

    strength: float = 0.1
    rollout: bool = False

    def __call__(self, batch: TrainBatch) -> torch.Tensor:
        advantage_NS = batch.column("advantage_NS", self)
        return (advantage_NS - self.strength * self._cost_NS(batch)) * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        size_NS, advantage_NS = self.strength * self._cost_NS(batch), batch.column("advantage_NS", self)
        return {
            "price/gap": float(ops.masked_mean(self._gap_NS(batch), batch.mask_NS)),
            "price/size": float(ops.masked_mean(size_NS.abs(), batch.mask_NS)),
            "price/of": float(ops.masked_mean(advantage_NS.abs(), batch.mask_NS)),
        }

    def _gap_NS(self, batch: TrainBatch) -> torch.Tensor:
        priced = replace(batch, proximal_NS=batch.facts.get("priced_NS", batch.proximal_NS))
        return -DiscrepancyPenalty(strength=1.0)(replace(priced, advantage_NS=torch.zeros_like(priced.mask_NS.float())))

    def _cost_NS(self, batch: TrainBatch) -> torch.Tensor:
        gap_NS = self._gap_NS(batch)
        if not self.rollout:
            return gap_NS
        cost_N = gap_NS.sum(-1)
        return (cost_N - ops.group_mean(cost_N, batch.column("group_N", self)))[:, None] * batch.mask_NS


@dataclass(frozen=True, kw_only=True)
class Apart(AbstractAnchor):
    """One anchor for the clip, another for the price."""

    clip: AbstractAnchor
    price: AbstractAnchor

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> torch.Tensor:
        return self.clip(batch, evaluate)

    def facts(self, batch: TrainBatch, evaluate: Evaluate) -> Mapping[str, torch.Tensor]:
        return {"priced_NS": self.price(batch, evaluate)}

    def start(self, policy: AbstractPolicy) -> Apart:
        return replace(self, clip=self.clip.start(policy), price=self.price.start(policy))

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        self.clip.publish(policy, version)
        self.price.publish(policy, version)


def run_of(question: str, arm: Arm, age: int, rate: float, seed: int) -> Run:
    anchors = {"present": Recompute(), "sampler": Behavior(), "version": SamplingVersion(window=age)}
    split = arm.price and arm.against != arm.clip
    return replace(
        grpo(),
        engine=Native(slots=PROMPTS * GROUP, precision="float32"),
        faults=None if question == "age" else Faults(weight_precision="int4", unproved=True),
        prompts_per_step=PROMPTS,
        num_generations=GROUP,
        max_staleness=age,
        ahead="full",
        anchor=Apart(clip=anchors[arm.clip], price=anchors[arm.against]) if split else anchors[arm.clip],
        objective=ClippedRatio() if arm.clips else ClippedRatio(clip_low=math.inf, clip_high=math.inf),
        correction=arm.weight,
        aggregation=TokenMean(),
        shaping=(Price(rollout=arm.price == "rollout"),) if arm.price else (),
        controllers={
            "shaping.0.strength": Lagrangian(signal="price/gap", limit=LIMIT, rate=MULTIPLIER_RATE, initial=0.1)
        }
        if arm.price
        else {},
        optimization=Optimization(learning_rate=rate, minibatches=arm.updates, microbatch_tokens=4096),
        steps=STEPS,
        seed=seed,
        threads=1,
    )


def measure(question: str, name: str, age: int, rate: float, seed: int) -> dict[str, Any]:
    """One run: its score, and whether what it is named after was at work."""
    trainer = Trainer(run_of(question, QUESTIONS[question][name], age, rate, seed))
    rows, above = [], []
    try:
        for _ in range(STEPS):
            metrics, _, batch = trainer.advance()
            rows.append(metrics)
            log_NS = batch.column("proximal_NS", measure) - batch.column("behavior_NS", measure)
            above.append(float((log_NS[batch.mask_NS].exp() > CAPS.get(name, np.inf)).float().mean()))
        score = held_out(trainer, *((96, 2) if seed == TUNING else (256, 4)))
    finally:
        trainer.close()
    curves = {
        "pass_rate": "pass_rate",
        "gap": "mismatch/prob_diff",
        "priced": "price/gap",
        "multiplier": "control/shaping.0.strength",
        "size": "price/size",
        "of": "price/of",
    }
    return {
        **dict(zip(KEY, (question, name, age, rate, seed), strict=True)),
        "score": score,
        "clipped": statistics.fmean(row["clip_ratio/low"] + row["clip_ratio/high"] for row in rows),
        "above_cap": statistics.fmean(above) if name in CAPS else None,
        "oldest": max(row["staleness/max"] for row in rows),
        "grad_norm": max(row["grad_norm"] for row in rows),
        **{key: [float(f"{row[metric]:.3g}") for row in rows] for key, metric in curves.items() if metric in rows[0]},
    }


def held_out(trainer: Trainer, tasks: int, samples: int) -> float:
    """pass@1 of the present weights in the sampler's own precision, on held-out tasks."""
    run, policy = trainer.run, trainer.learner.policy
    engine = trainer.faults.rounding(run.engine.start(policy))
    engine.load(trainer.learner.version, policy.state_dict())
    return evaluate(
        engine, held_out_tasks(size=tasks), trainer.rewards, run.sampling, samples=samples, seed=run.seed
    ).pass_at[1]


def load(path: Path = RECORD) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def at(runs: Sequence[Mapping[str, Any]], question: str, age: int, arm: str) -> list[Mapping[str, Any]]:
    return [run for run in runs if (run["question"], run["age"], run["arm"]) == (question, age, arm)]


def tuning(runs: Sequence[Mapping[str, Any]], question: str, age: int, arm: str) -> dict[float, float]:
    """Learning rate -> score of its tuning run, in order of rates."""
    tried = {run["rate"]: run["score"] for run in at(runs, question, age, arm) if run["seed"] == TUNING}
    return dict(sorted(tried.items()))


def best(runs: Sequence[Mapping[str, Any]], question: str, age: int, arm: str) -> float | None:
    """The best learning rate, once all of them have been tried; the smaller of equals."""
    tried = tuning(runs, question, age, arm)
    return max(tried, key=lambda rate: tried[rate]) if len(tried) == len(RATES) else None


def stable(runs: Sequence[Mapping[str, Any]], question: str, age: int, arm: str) -> float | None:
    """The largest rate up to which no tuning run ended below what it began with."""
    tried = tuning(runs, question, age, arm)
    held = list(takewhile(lambda rate: tried.get(rate, 0) >= BEFORE, RATES))
    return held[-1] if held else None


def fresh(
    runs: Sequence[Mapping[str, Any]], question: str, age: int, arm: str, rate: float | None = None
) -> list[Mapping[str, Any]]:
    """The runs of the fresh seeds at a rate, by default the best, in the order of seeds."""
    rate = rate or best(runs, question, age, arm)
    here = [run for run in at(runs, question, age, arm) if run["seed"] in SEEDS and run["rate"] == rate]
    return sorted(here, key=lambda run: run["seed"])


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    return permutation_p(np.array(one)[:, None], np.array(other)[:, None], np.random.default_rng(0))


def whole() -> int:
    return sum(len(s.arms) * (len(SEEDS) + (len(RATES) if s.rate is None else 0)) for s in STAGES)


def left(runs: list[dict[str, Any]]) -> Iterator[tuple[str, str, int, float, int]]:
    """What remains to be run; ``runs`` grows meanwhile, and with it the best rates are known."""
    done = {tuple(run[name] for name in KEY) for run in runs}
    for stage in STAGES:
        first = [(stage.question, arm, stage.age, rate, TUNING) for arm in stage.arms for rate in RATES]
        yield from (cell for cell in first if cell not in done and stage.rate is None)
        for seed, arm in product(SEEDS, stage.arms):
            rate = stage.rate or best(runs, stage.question, stage.age, arm)
            assert rate is not None, "all rates have been tried"
            if (cell := (stage.question, arm, stage.age, rate, seed)) not in done:
                yield cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=RECORD)
    path = parser.parse_args().record
    runs = load(path)
    for cell in left(runs):
        runs.append(found := measure(*cell))
        print(*cell, f"{found['score']:.3f} clipped {found['clipped']:.4f}", flush=True)
        partial = path.with_suffix(".partial")
        partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in runs) + "\n]\n")
        partial.replace(path)


if __name__ == "__main__":
    main()
