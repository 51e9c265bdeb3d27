"""A few policies and a bandit against an attacker that is not known: PROTECTED on a cart that is misread (arXiv:2402.12673).

**Setting.** `environments/misread_cart.py`: CartPole cut off after 200 steps, of whose pole the policy is told a wrong rate of turning,
by a constant that an attacker chooses. *Known* attackers add 0, .5, -.5, 1 or -1 to it; *unseen* ones .25, -.25, .75 or -.75, and an
error of the angle of .05 besides, of the same sign. A policy is PPO's by the recipe `cartpole`, 24 steps of 16 episodes; no policy
remembers anything. Arms: *protected*, `Defenders` with at most three members, each trained under one known attack, and 100 episodes of
each attacker in which `AdversarialBandit` picks the member, by what episodes earned before; *alone*, of its members the one whose
mean over the known attacks is highest (by 20 episodes each), without a bandit; *randomized*, one policy with as much training as three
members (72 steps), whose episodes go through the known attacks in turn. Figure: the mean return of an episode, as policies sample, over
the five known attackers, the bandit's losses while it learns among them; beside it the same over the unseen ones, and over *switching*
ones: after each ten episodes another known attacker.

**Rates.** Each arm at the best of 1e-3, 2e-3 and 4e-3, one for policy and critic, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *A set and a bandit beat one policy for all* if *protected* is above *randomized*;
*the bandit matters* if *protected* is above *alone*; *against attackers that were not seen* and *against attackers that change* if it
is above *randomized* there.

**Limits.** One task; attackers that are listed and add constants, where the paper trains attackers within a ball. *protected* learns at
test time from what episodes earned, which *randomized* is not offered. Choosing members took 15 evaluations of 20 episodes, which count
for no arm. Episodes of a member under an attacker are drawn from 40 that were played.

Written before its runs, after a pilot of seed 0 at 2e-3 with errors of .12 of the angle and 1 of the turning: a policy trained without
attack has 200 without and 11 to 15 with a turning of 1 or -1, those trained under one attack about 200 there and 10 to 26 under its
opposite, and one trained under all nine for 48 steps a mean of 110. Errors of the place up to 2 and of the angle up to .1 alone harmed
few: the randomized policy had 200 under each.

    python claims/attacked.py       # goes on from claims/attacked.json; about ten minutes of one core

**After the runs.** The bandit of these runs raised the arm that was played by its gain. It now lowers it by its loss, for which alone
the regret is bounded. By a simulation with three such members over 100 rounds it returns 169 beside 178 against attackers that stay,
and 76 beside 72 against those that change, so no verdict hangs on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal import recipes
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.adaptive_defence import AdversarialBandit, Defended, Defenders
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.control import StepSampling
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("protected", "alone", "randomized"), (1e-3, 2e-3, 4e-3), (0, 1, 2, 3, 4), "known")
COMPARED = {
    "a set and a bandit beat one policy for all": ("protected", "randomized"),
    "the bandit matters": ("protected", "alone"),
    "against attackers that were not seen": ("protected", "randomized", "unseen"),
    "against attackers that change": ("protected", "randomized", "switching"),
}
STEPS, MEMBERS, ROUNDS, LONGEST = 24, 3, 100, 200
CART = "gimbal.environments.misread_cart:MisreadCart"
KNOWN = tuple(f"{CART}@turn={turn:g}" for turn in (0.0, 0.5, -0.5, 1.0, -1.0))
UNSEEN = tuple(f"{CART}@turn={turn:g},angle={np.sign(turn) * 0.05:g}" for turn in (0.25, -0.25, 0.75, -0.75))

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(tasks: Gymnasium, steps: int, rate: float, seed: int) -> Run:
    run = recipes.load("cartpole")
    assert isinstance(run, Run)
    rates = replace(run.optimization, learning_rate=rate, critic_learning_rate=rate)
    sampling = StepSampling(max_length=LONGEST)
    return replace(
        run, tasks=tasks, held_out=None, sampling=sampling, optimization=rates, steps=steps, seed=seed, threads=1
    )


def trained(tasks: Gymnasium, steps: int, rate: float, seed: int) -> tuple[Run, AbstractPolicy]:
    trainer = Trainer(run_of(tasks, steps, rate, seed))
    trainer.begin()
    for _ in range(steps):
        trainer.advance()
    run, policy = trainer.run, trainer.learner.policy
    trainer.close()
    return run, policy


def returns(run: Run, policy: AbstractPolicy, attacker: str, seed: int, count: int) -> np.ndarray:
    """Of so many episodes under an attacker."""
    tasks = Gymnasium(environment=attacker, seed=seed, size=count)
    held_out = HeldOut(tasks=tasks, samples=1, engine=Episodes(slots=count))
    return np.array([*evaluate_held_out(replace(run, held_out=held_out), policy).by_task.values()])


@cache
def defended(rate: float, seed: int) -> Defended[tuple[Run, AbstractPolicy]]:
    """The members that *protected* and *alone* share at the same rate."""

    def answer(attack: int) -> tuple[Run, AbstractPolicy]:
        return trained(Gymnasium(environment=KNOWN[attack], seed=1), STEPS, rate, seed)

    def earned(member: tuple[Run, AbstractPolicy], attack: int) -> float:
        return float(returns(*member, KNOWN[attack], 3, 20).mean())

    # Nobody earns more than an episode that is not cut short.
    return Defenders(tolerance=10.0, most=MEMBERS)(range(len(KNOWN)), lambda attack: LONGEST, answer, earned)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start, found = time.process_time(), {"arm": arm, "rate": rate, "seed": seed}
    if arm == "randomized":
        tasks = Gymnasium(environment=CART, grid={"turn": (0.0, 0.5, -0.5, 1.0, -1.0)}, seed=1)
        members = [trained(tasks, STEPS * MEMBERS, rate, seed)]
    else:
        chosen = defended(rate, seed)
        found |= {"answers": [KNOWN[attack].partition("=")[2] for attack in chosen.attacks]}
        best = int(chosen.return_KM.mean(1).argmax())
        members = [chosen.solutions[best]] if arm == "alone" else list(chosen.solutions)
    played_AKE = np.array([[returns(*member, name, 7, 40) for member in members] for name in (*KNOWN, *UNSEEN)])
    known = range(len(KNOWN))
    figures = {
        "known": [met(played_AKE, [a] * ROUNDS, seed) for a in known],
        "unseen": [met(played_AKE, [len(KNOWN) + a] * ROUNDS, seed) for a in range(len(UNSEEN))],
        "switching": [met(played_AKE, [t // 10 % len(KNOWN) for t in range(ROUNDS)], seed)],
        "best": [played_AKE[a].mean(-1).max() for a in known],  # of the members, if one knew which
    }
    found |= {name: round(float(np.mean(values)), 1) for name, values in figures.items()}
    return {**found, "each": [round(value) for value in figures["known"]], "cpu": round(time.process_time() - start, 1)}


def met(played_AKE: np.ndarray, attackers: Sequence[int], seed: int) -> float:
    """The mean return of a round against these attackers, one after the other: of a bandit over the members, without one where there
    is one."""
    generator = np.random.default_rng(seed)
    episodes_T = generator.integers(played_AKE.shape[2], size=len(attackers))
    bandit = AdversarialBandit(arms=played_AKE.shape[1], rounds=len(attackers), high=float(LONGEST))
    return float(bandit.play(lambda k, t: float(played_AKE[attackers[t], k, episodes_T[t]]), generator)[1].mean())


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
