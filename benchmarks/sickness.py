"""Runs made sick by what a user may set wrongly, runs made sick by a fault of the machinery, and healthy runs: the cases of doctor.py.

A run takes seconds: 32 rollouts a step, 16 to 24 steps, of gimbal-tiny, or a control task. Which recipe gets which sickness is drawn by
lot (``draw``), so that nobody picks the cases that suit the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import recipes
from gimbal.advantages.base import AbstractAdvantage
from gimbal.environments.chores import Chores
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
STEPS = 16
EXAM = 64  # tasks of the evaluation, four answers each: a standard error of 0.03
Change = Callable[[Run], Run]


def small(run: Run) -> Run:
    """A quarter of a recipe's rollouts a step, scored within the process, and of its evaluation; a control task as it is."""
    if run.policy.family != CausalLM.family:
        return run
    # Under the name it had: other parts may read it.
    rewards = tuple(
        ExactAnswer(name=reward.name, weight=reward.weight) if isinstance(reward, ReasoningScore) else reward
        for reward in run.rewards
    )
    generations = min(8, run.num_generations)
    run = replace(run, rewards=rewards, num_generations=generations, prompts_per_step=32 // generations)
    if run.held_out is None or isinstance(run.tasks, Chores):  # of the terminal's 50 tasks all
        return run
    return replace(run, held_out=replace(run.held_out, tasks=replace(run.held_out.tasks, size=EXAM), samples=4))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of run: its recipe, what makes it sick, and the cause that is right ("" for a healthy one)."""

    name: str
    expected: str
    recipe: str
    change: Change
    steps: int

    def run(self, seed: int) -> Run:
        run = self.change(small(replace(recipes.load(self.recipe), steps=self.steps)))
        return replace(run, seed=seed, threads=1, checkpoint_every=self.steps, record_every=0)


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
        assert run.held_out is not None
        reward = Function(function=f"{Path(__file__).parent / 'gameable.py'}:{function}")
        return replace(run, rewards=(reward,), held_out=replace(run.held_out, rewards=run.rewards))

    return change


def bribed(function: str, weight: float) -> Change:
    """The true verdict, and beside it a user's function."""

    def change(run: Run) -> Run:
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
    return replace(run, tasks=replace(run.tasks, parameters=longer, exclude=None))


def critic(**changes: Any) -> Change:
    return lambda run: replace(run, critic=replace(run.critic, **changes))


def faulty(name: str, expected: str, steps: int = 6, factor: float = 1.0, recipe: str = "grpo", **knobs: Any) -> Case:
    def change(run: Run) -> Run:
        return replace(rate(factor)(run), faults=Faults(**knobs), held_out=None)

    return Case(name=name, expected=expected, recipe=recipe, change=change, steps=steps)


def unlearned(run: Run) -> Run:
    """A policy that writes at random, paid for length: it learns never to end."""
    fast = replace(run.optimization, learning_rate=1e-3)
    return replace(run, policy=CausalLM(fresh=True), faults=Faults(reward_length=0.1), optimization=fast, held_out=None)


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
    Case(name="length paid", expected="length run-away", recipe="grpo", change=unlearned, steps=12),
]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A way to make a run sick: ``count`` of these recipes get it, drawn at random."""

    name: str
    expected: str
    change: Change
    recipes: Sequence[str]
    count: int = 1
    steps: int = 0  # 0: as many as its healthy twin

    def drawn(self, lot: Random) -> list[Case]:
        return [
            Case(
                name=f"{self.name} ({recipe})",
                expected=self.expected,
                recipe=recipe,
                change=self.change,
                steps=self.steps or length(recipe),
            )
            for recipe in lot.sample(self.recipes, self.count)
        ]


def length(recipe: str) -> int:
    """Steps of a healthy run: until it has learned something."""
    return {"cartpole": 36, "routing_replay": 36, "pendulum": 48, "sft": 25, "dereason_sft": 25}.get(recipe, STEPS)


# Recipes that the sicknesses are drawn for: those that score a group of answers ...
ALIKE = ("grpo", "rloo", "dr_grpo", "bnpo", "gspo", "minirl", "cispo")
UNCORRECTED = ("grpo", "rloo", "dr_grpo", "bnpo", "clip_higher")
TEXT = (*ALIKE, "tis", "icepop", "reinforce", "clip_higher", "reinforce_plus_plus", "kl_reward", "mhpo")
CONTROL = ("cartpole", "pendulum", "routing_replay")
FILTERED = ("dapo", "demo", "codev_r1")

FAST, SIGN, HACK, FEW = "learning rate too high", "wrong sign", "reward hacking", "too few rollouts"
STALE, SLOW, HELD, LOUD = "staleness", "learning rate too low", "held back", "entropy bonus too strong"
HOT, CUT, STARVED, DEAD = "temperature", "max_length too small", "filter starvation", "dead gradient"
CRITIC, SURE = "critic", "entropy collapse"

KINDS = (
    Kind(name="rate x10", expected=FAST, change=rate(10), recipes=TEXT, count=2),
    Kind(name="rate x20", expected=FAST, change=rate(20), recipes=TEXT, count=2),
    Kind(name="rate x50", expected=FAST, change=rate(50), recipes=TEXT),
    Kind(name="rate x100", expected=FAST, change=rate(100), recipes=CONTROL),
    Kind(name="rate /100", expected=SLOW, change=rate(0.01), recipes=TEXT, count=3),
    Kind(name="rate /300", expected=SLOW, change=rate(1 / 300), recipes=CONTROL),
    Kind(name="weight -1", expected=SIGN, change=weighed, recipes=TEXT, count=2),
    Kind(name="negated", expected=SIGN, change=negated, recipes=(*TEXT, *CONTROL), count=3),
    Kind(name="errors", expected=SIGN, change=paid("error_count"), recipes=TEXT),
    Kind(name="turned", expected=SIGN, change=paid("turned"), recipes=TEXT),
    Kind(name="pays direct", expected=HACK, change=paid("direct"), recipes=TEXT, steps=24),
    Kind(name="pays tildes", expected=HACK, change=paid("approximate"), recipes=TEXT, steps=24),
    Kind(name="pays plausible", expected=HACK, change=paid("plausible"), recipes=TEXT, steps=24),
    Kind(name="pays swift", expected=HACK, change=paid("swift"), recipes=TEXT, steps=24),
    Kind(name="bribes direct", expected=HACK, change=bribed("direct", 5.0), recipes=TEXT, steps=24),
    Kind(name="bribes tildes", expected=HACK, change=bribed("approximate", 5.0), recipes=TEXT, steps=24),
    Kind(name="1 x 2", expected=FEW, change=few(1, 2, 4.0), recipes=ALIKE, count=2, steps=24),
    Kind(name="1 x 4", expected=FEW, change=few(1, 4, 4.0), recipes=ALIKE, steps=24),
    Kind(name="1 episode", expected=FEW, change=few(1, 1), recipes=CONTROL, steps=24),
    Kind(name="age 8", expected=STALE, change=stale(8, 3.0), recipes=UNCORRECTED, count=2, steps=24),
    Kind(name="age 12", expected=STALE, change=stale(12, 4.0), recipes=UNCORRECTED, count=2, steps=24),
    Kind(name="entropy bonus 10", expected=LOUD, change=regularised(EntropyBonus(coef=10.0)), recipes=TEXT),
    Kind(name="entropy bonus 20", expected=LOUD, change=regularised(EntropyBonus(coef=20.0)), recipes=TEXT),
    Kind(name="entropy bonus 30", expected=LOUD, change=regularised(EntropyBonus(coef=30.0)), recipes=CONTROL),
    Kind(name="entropy priced", expected=SURE, change=regularised(EntropyBonus(coef=-3.0)), recipes=TEXT, count=2),
    Kind(name="KL 50", expected=HELD, change=regularised(KLPenalty(coef=50.0)), recipes=TEXT),
    Kind(name="KL 100", expected=HELD, change=regularised(KLPenalty(coef=100.0)), recipes=TEXT),
    Kind(name="temperature 2", expected=HOT, change=sampled(temperature=2.0), recipes=TEXT),
    Kind(name="temperature 3", expected=HOT, change=sampled(temperature=3.0), recipes=TEXT),
    Kind(name="length 12", expected=CUT, change=sampled(max_length=12), recipes=TEXT),
    Kind(name="length 20", expected=CUT, change=sampled(max_length=20), recipes=TEXT),
    Kind(name="hard", expected=DEAD, change=hard, recipes=ALIKE, count=2),
    Kind(name="hard", expected=STARVED, change=hard, recipes=FILTERED, count=2, steps=6),
    Kind(name="scale 1e5", expected=CRITIC, change=critic(scale=1e5), recipes=("cartpole", "routing_replay")),
    Kind(name="scale 1e6", expected=CRITIC, change=critic(scale=1e6), recipes=("pendulum",)),
)
# Other recipes, healthy: all that are evaluated and start from gimbal-tiny or the like. doctor.json has echo and salt as
# they were before they acted in a terminal: sums with a calculator, and sums that are written in one go.
# fmt: off
OTHERS = (
    "acre", "aepo", "asyppo", "bapo", "branched", "caprl", "clip_cov", "dcmdp", "debate", "decoupled_ppo", "dereason", "dispo",
    "depo", "direct_advantage", "doge", "doge_apply", "dpo", "drpo", "echo", "entropy", "epo", "exact_proximal", "gdpo", "ghpo",
    "hc_rlhf", "hdpo", "ic_grpo", "ipa", "kimi_length", "kl_adaptive", "kl_cov", "kl_smoothed", "lite_ppo", "mc_grpo", "nsr",
    "otr", "paco_grpo", "poise", "policy_cliff", "polychromic", "ppo", "ppo_ewma", "r2vpo", "r3l", "rejuvenation", "remix",
    "resrl", "salt", "scope", "sft", "sgrpo", "smiles_grpo", "specs_start", "spo", "stratified_grpo", "thinkrl_edit", "v0",
    "vcpo", "verl_rank", "w_reinforce", "xrpo",
)
# fmt: on


def unchanged(run: Run) -> Run:
    return run


def well(recipe: str) -> Case:
    return Case(name=recipe, expected=HEALTHY, recipe=recipe, change=unchanged, steps=length(recipe))


def draw(number: int, others: int = 12) -> list[Case]:
    """The cases of a draw: sick ones, the healthy twin of each of their recipes, and other healthy recipes."""
    lot = Random(number)
    sick = [case for kind in KINDS for case in kind.drawn(lot)]
    twins = dict.fromkeys((*CONTROL[:2], *(case.recipe for case in sick)))
    return [*sick, *map(well, (*twins, *lot.sample(OTHERS, others)))]
