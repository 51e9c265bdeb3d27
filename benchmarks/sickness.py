"""Runs made sick by what a user may set wrongly, runs made sick by a fault of the machinery, and healthy runs: the cases of doctor.py.

A run takes seconds: 32 or 64 rollouts a step, 10 to 24 steps, of gimbal-tiny, or a control task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import recipes
from gimbal.advantages.base import AbstractAdvantage
from gimbal.engines.native import Native
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.policies.token import CausalLM
from gimbal.records import TrainBatch
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.function import Function
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.faults import Faults
from gimbal.runtime.run import Run

HEALTHY = ""
Change = Callable[[Run], Run]


def examined(run: Run, size: int, samples: int) -> Run:
    """With a small exam, so that a run takes seconds."""
    if run.held_out is None or run.policy.family != CausalLM.family:
        return run
    tasks = replace(run.held_out.tasks, size=size)
    return replace(run, held_out=replace(run.held_out, tasks=tasks, samples=samples))


def small(run: Run, rollouts: int = 64) -> Run:
    """A half of a recipe's rollouts a step, or a quarter; a control task as it is."""
    if run.policy.family != CausalLM.family:
        return run
    generations = min(8, run.num_generations)
    return examined(replace(run, num_generations=generations, prompts_per_step=rollouts // generations), 32, 2)


def light(run: Run) -> Run:
    """A quarter, scored within the process."""
    rewards = tuple(ExactAnswer() if isinstance(reward, ReasoningScore) else reward for reward in run.rewards)
    return small(replace(run, rewards=rewards), 32)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of run: its recipe and size, what makes it sick, and the cause that is right ("" for a healthy one)."""

    name: str
    expected: str
    recipe: str
    size: Change
    change: Change
    steps: int
    seeds: int = 1  # of a healthy one

    def run(self, seed: int) -> Run:
        run = self.change(self.size(replace(recipes.load(self.recipe), steps=self.steps)))
        return replace(run, seed=seed, threads=1, checkpoint_every=max(1, self.steps // 2), record_every=0)


@dataclass(frozen=True, kw_only=True)
class Negated(AbstractAdvantage):
    """The advantage with its sign turned, as a slip of the pen in somebody's own method would."""

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:  # noqa: F722
        return -batch.column("advantage_NS", self)


def rate(factor: float) -> Change:
    def change(run: Run) -> Run:
        old = run.optimization
        critic = old.critic_learning_rate and old.critic_learning_rate * factor
        faster = replace(old, learning_rate=old.learning_rate * factor, critic_learning_rate=critic)
        return replace(run, optimization=faster)

    return change


def paid(function: str) -> Change:
    """By a user's function; the evaluation is by the true verifier."""

    def change(run: Run) -> Run:
        run = examined(run, 64, 4)
        assert run.held_out is not None
        reward = Function(function=f"{Path(__file__).parent / 'gameable.py'}:{function}")
        return replace(run, rewards=(reward,), held_out=replace(run.held_out, rewards=run.rewards))

    return change


def bribed(function: str, weight: float) -> Change:
    """The true verdict, and beside it a user's function."""

    def change(run: Run) -> Run:
        run = examined(run, 64, 4)
        assert run.held_out is not None
        extra = Function(function=f"{Path(__file__).parent / 'gameable.py'}:{function}", weight=weight)
        return replace(run, rewards=(*run.rewards, extra), held_out=replace(run.held_out, rewards=run.rewards))

    return change


def weighed(run: Run) -> Run:
    return replace(run, rewards=(replace(run.rewards[0], weight=-1.0), *run.rewards[1:]))


def negated(run: Run) -> Run:
    return replace(run, shaping=(*run.shaping, Negated()))


def few(prompts: int, generations: int, factor: float = 1.0) -> Change:
    return lambda run: replace(rate(factor)(run), prompts_per_step=prompts, num_generations=generations)


def stale(age: int, factor: float = 1.0) -> Change:
    return lambda run: replace(rate(factor)(run), max_staleness=age, ahead="full")


def sampled(**changes: Any) -> Change:
    return lambda run: replace(run, sampling=replace(run.sampling, **changes))


def regularised(part: Any) -> Change:
    return lambda run: replace(run, regularisers=(*run.regularisers, part))


def hard(run: Run) -> Run:
    """Sums of more terms than gimbal-tiny can do."""
    longer = {**run.tasks.parameters, "min_terms": 6, "max_terms": 6}
    return replace(run, tasks=replace(run.tasks, parameters=longer, exclude=None), held_out=None)


def critic(**changes: Any) -> Change:
    return lambda run: replace(run, critic=replace(run.critic, **changes))


def sick(name: str, expected: str, change: Change, *recipe: str, steps: int = 10, size: Change = light) -> list[Case]:
    return [
        Case(name=f"{name} ({one})", expected=expected, recipe=one, size=size, change=change, steps=steps)
        for one in recipe
    ]


FAST, SIGN, HACK, FEW = "learning rate too high", "wrong sign", "reward hacking", "too few rollouts"
STALE, SLOW, HELD, LOUD = "staleness", "learning rate too low", "held back", "entropy bonus too strong"
HOT, CUT, STARVED, DEAD = "temperature", "max_length too small", "filter starvation", "dead gradient"
CRITIC = "critic"

SMALL: Any = {"size": small, "steps": 12}
# Rules and limits were made on these, seed 0 of each, and doses chosen so that the run is really sick ...
DEVELOPED = [
    *sick("rate x10", FAST, rate(10), "grpo", "rloo", **SMALL),
    *sick("rate x30", FAST, rate(30), "grpo", "demo", "pendulum", **SMALL),
    *sick("rate x100", FAST, rate(100), "cartpole", **SMALL),
    *sick("weight -1", SIGN, weighed, "grpo", "rloo", **SMALL),
    *sick("negated", SIGN, negated, "grpo", "cartpole", "pendulum", **SMALL),
    *sick("turned", SIGN, paid("turned"), "grpo", **SMALL),
    *sick("pays direct", HACK, paid("direct"), "rloo", steps=20, size=small),
    *sick("pays tildes", HACK, paid("approximate"), "grpo", steps=16),
    *sick("1 x 2", FEW, few(1, 2, 4.0), "grpo", steps=24),
    *sick("1 x 4", FEW, few(1, 4, 3.0), "rloo", steps=24),
    *sick("age 8", STALE, stale(8, 3.0), "grpo", steps=20),
    *sick("rate /100", SLOW, rate(0.01), "grpo", "cartpole"),
    *sick("entropy bonus 10", LOUD, regularised(EntropyBonus(coef=10.0)), "grpo", "cartpole", steps=14),
    *sick("KL 50", HELD, regularised(KLPenalty(coef=50.0)), "grpo"),
    *sick("temperature 2.5", HOT, sampled(temperature=2.5), "grpo"),
    *sick("length 16", CUT, sampled(max_length=16), "grpo"),
    *sick("hard", DEAD, hard, "grpo"),
    *sick("hard", STARVED, hard, "demo", steps=4),
    *sick("scale 3e4", CRITIC, critic(scale=3e4), "cartpole", steps=20),
]
# ... and held against these: another seed, and other recipes, doses and rewards.
FRESH = [
    *sick("rate x10", FAST, rate(10), "dr_grpo", "reinforce", "clip_higher"),
    *sick("rate x20", FAST, rate(20), "gspo", "cispo", "kl_reward", "tis"),
    *sick("rate x50", FAST, rate(50), "pendulum"),
    *sick("rate x200", FAST, rate(200), "cartpole"),
    *sick("weight -1", SIGN, weighed, "dr_grpo", "cispo"),
    *sick("negated", SIGN, negated, "rloo", "reinforce_plus_plus", "routing_replay"),
    *sick("errors", SIGN, paid("error_count"), "grpo", "reinforce", steps=14),
    *sick("pays plausible", HACK, paid("plausible"), "grpo", steps=16),
    *sick("pays tildes", HACK, paid("approximate"), "dr_grpo", steps=16),
    *sick("pays direct", HACK, paid("direct"), "kl_reward", steps=16),
    *sick("bribes direct", HACK, bribed("direct", 5.0), "reinforce_plus_plus", steps=16),
    *sick("1 x 2", FEW, few(1, 2, 4.0), "rloo", steps=24),
    *sick("1 x 4", FEW, few(1, 4, 4.0), "dr_grpo", steps=24),
    *sick("1 episode", FEW, few(1, 1), "pendulum", steps=20),
    *sick("age 6", STALE, stale(6, 4.0), "clip_higher", steps=20),
    *sick("age 10", STALE, stale(10, 3.0), "grpo", steps=20),
    *sick("rate /100", SLOW, rate(0.01), "dr_grpo", "gspo", "pendulum", "routing_replay"),
    *sick("entropy bonus", LOUD, regularised(EntropyBonus(coef=20.0)), "dr_grpo", steps=14),
    *sick("entropy bonus", LOUD, regularised(EntropyBonus(coef=30.0)), "cartpole", "pendulum", steps=14),
    *sick("KL 100", HELD, regularised(KLPenalty(coef=100.0)), "dr_grpo"),
    *sick("temperature 3", HOT, sampled(temperature=3.0), "rloo"),
    *sick("temperature 2", HOT, sampled(temperature=2.0), "dr_grpo"),
    *sick("length 20", CUT, sampled(max_length=20), "dr_grpo"),
    *sick("hard", DEAD, hard, "dr_grpo"),
    *sick("hard", STARVED, hard, "dapo", steps=4),
    *sick("scale", CRITIC, critic(scale=1e5), "cartpole", steps=20),
    *sick("scale", CRITIC, critic(scale=3e5), "pendulum"),
]
SICK = [*DEVELOPED, *FRESH]


def faulty(name: str, expected: str, steps: int = 6, factor: float = 1.0, recipe: str = "grpo", **knobs: Any) -> Case:
    def change(run: Run) -> Run:
        return replace(rate(factor)(run), faults=Faults(**knobs), held_out=None)

    return Case(name=name, expected=expected, recipe=recipe, size=light, change=change, steps=steps)


def unlearned(run: Run) -> Run:
    """A policy that writes at random, paid for length: it learns never to end."""
    fast = replace(run.optimization, learning_rate=1e-3)
    return replace(run, policy=CausalLM(fresh=True), faults=Faults(reward_length=0.1), optimization=fast, held_out=None)


def priced(run: Run) -> Run:
    """Sums too long for gimbal-tiny, with a price on entropy: it becomes sure of itself and learns nothing."""
    return rate(5)(hard(replace(run, regularisers=(EntropyBonus(coef=-2.0),))))


# Faults of the machinery, injected: what no setting brings about.
FAULTS = [
    faulty("log-prob noise", "mismatch", logprob_noise=0.5),
    faulty("int4 weights", "mismatch", weight_precision="int4"),
    faulty("sampler too hot", "mismatch", sampler_temperature=1.5),
    faulty("sampler too cold", "mismatch", sampler_temperature=0.6),
    faulty("truncated support", "mismatch", sampler_top_p=0.8),
    faulty("token drift", "mismatch", token_drift=0.03),
    faulty("lost syncs, proved", "no delivery", lost_syncs=1.0),
    faulty("lost syncs", "no delivery", lost_syncs=0.5, unproved=True),
    faulty("stale weights", "no delivery", 8, stale_weights=4, unproved=True),
    faulty("half-swapped weights", "no delivery", 8, half_swapped=0.5, unproved=True),
    faulty("dropped samples", "lost samples", dropped_samples=0.1),
    faulty("doubled samples", "lost samples", recipe="demo", doubled_samples=0.1),
    faulty("reward noise", "noisy reward", reward_noise=0.3),
    faulty("verdicts turned", "noisy reward", recipe="demo", reward_flip=0.2),
    faulty("blind reward", "dead gradient", 8, reward_blind=1.0),
    faulty("blind reward, filtered", "filter starvation", 3, recipe="demo", reward_blind=0.85),
    faulty("shortness paid", "reward hacking", 12, 5.0, reward_length=-0.1),
    Case(name="length paid", expected="length run-away", recipe="grpo", size=small, change=unlearned, steps=12),
    Case(name="entropy priced", expected="entropy collapse", recipe="grpo", size=small, change=priced, steps=12),
]


def unchanged(run: Run) -> Run:
    return run


def well(
    name: str, seeds: int = 1, steps: int = 10, size: Change = light, change: Change = unchanged, label: str = ""
) -> Case:
    return Case(name=label or name, expected=HEALTHY, recipe=name, size=size, change=change, steps=steps, seeds=seeds)


def coarse(run: Run) -> Run:
    return replace(run, engine=Native(slots=128, precision="bfloat16"))


WELL = [
    well("demo", 2, size=small),
    well("grpo", 2, size=small),
    well("cartpole", 3, 36),
    well("pendulum", 3, 48),
    *(
        well(name, size=small)
        for name in ("rloo", "dr_grpo", "dapo", "reinforce", "ppo", "dpo", "decoupled_ppo", "kl_reward", "doge")
    ),
    well("sft", 1, 25, size=small),
    well("grpo", size=small, change=coarse, label="bfloat16"),
]
WELL_FRESH = [
    well("routing_replay", 1, 36),
    *map(
        well,
        (
            *(
                "clip_higher",
                "cispo",
                "gspo",
                "vcpo",
                "reinforce_plus_plus",
                "entropy",
                "kl_adaptive",
                "nsr",
                "w_reinforce",
            ),
            *("poise", "caprl", "echo", "seeupo", "omniverifier_m1", "scope", "debate", "specs_start", "otr", "tis"),
            "direct_advantage",
        ),
    ),
]
CASES = {case.name: case for case in (*SICK, *FAULTS, *WELL, *WELL_FRESH)}
assert len(CASES) == len(SICK) + len(FAULTS) + len(WELL) + len(WELL_FRESH), "two cases of one name"
