"""What one critic that knows how much of a return is chance is worth beside twins: STAC near a risk (arXiv:2601.00737).

**Setting.** `RiskyPoint`, the point of the recipe `stac`: it walks home past a disc in which a step costs 10 more with a chance of up
to .1; the way around is a little longer. 2,000 steps of the environment, one move of the weights each after the first 100, discount
.95, networks of 64 x 64. Arms: *sac*, twin critics; *neutral*, one critic of a normal return (`ReturnDistribution`) with pessimism 0;
*stac*, that with .5, the recipe. Figures: *return* of an episode and its steps *inside* the disc, means of 40 episodes, sampled from
the last policy; *bias*, by how much the critic's value of an action that was played (the least of the twins, the mean of the
distribution) is above what came of it, discounted and with the entropies that it counts, the mean over the steps of 40 episodes that
came home; *deviation* that the critic predicts.

**Rates.** Each arm at the better of 1e-3 and 3e-3, one for policy and critics, by the return of one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Pessimism keeps away from the risk*: *neutral* above *stac* in *inside*; *Pessimism
returns more*: *stac* above *neutral*; *It returns more than twins*: *stac* above *sac*; *Twins are inside more*: *sac* above *stac*
in *inside*; *It overestimates less than twins*: *sac* above *stac* in *bias*, and the same of *neutral* beside *stac*.

**Limits.** One task of two numbers, made for what the method is about; short runs; no dropout or layer norm in the policy. The
published gains are on MuJoCo, with networks of 256 x 256 and a pessimism by task, which is not tuned here.

Written before its runs, after single pilots of seed 100 at 1e-3: return -9.2 and 2.9 steps inside with *sac*, -14.4 and 3.7 with
*neutral*, -8.8 and 2.1 with *stac*.

    python claims/stac.py       # goes on from claims/stac.json; five minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.critics.return_distribution import ReturnDistribution
from gimbal.environments.risky_point import RiskyPoint
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussianPolicy
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("sac", "neutral", "stac"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
STEPS, EPISODES = 2_000, 40
COMPARED = {
    "Pessimism keeps away from the risk": ("neutral", "stac", "inside"),
    "Pessimism returns more": ("stac", "neutral"),
    "It returns more than twins": ("stac", "sac"),
    "Twins are inside more": ("sac", "stac", "inside"),
    "It overestimates less than twins": ("sac", "stac", "bias"),
    "Pessimism overestimates less": ("neutral", "stac", "bias"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("stac", {"held_out.tasks.size": EPISODES})
    assert isinstance(run, UpdateRun) and isinstance(run.update, SoftActorCritic)
    critic = run.update.critic
    assert isinstance(critic, ReturnDistribution)
    if arm == "neutral":
        critic = replace(critic, pessimism=0.0)
    if arm == "sac":
        critic = ActionValues(observations=2, actions=2)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(run.update, critic=critic, optimization=rates)
    return replace(run, update=update, seed=seed, threads=1)


@torch.no_grad()
def bias(trainer: Trainer, twins: bool) -> float:
    """Of the values of actions of the last policy, in episodes that came home."""
    models, policy, world = trainer.learner.models, trainer.learner.policy, RiskyPoint()  # pyrefly: ignore
    assert isinstance(policy, SquashedGaussianPolicy)
    generator, gamma, alpha = np.random.default_rng(7), 0.95, float(models["temperature"].log.exp())
    apart: list[float] = []
    for seed in range(EPISODES):
        seen, home, cut = world.reset(seed=10_000 + seed)[0], False, False
        steps: list[tuple[float, float, float]] = []  # value, log-probability, reward
        while not home and not cut:
            seen_1O = torch.from_numpy(seen)[None]
            noise_1A = torch.from_numpy(generator.standard_normal((1, 2), dtype=np.float32))
            action_1A, logprob_1 = policy.sample(seen_1O, noise_1A)
            q_1M = models["critic"](policy.normal(seen_1O), action_1A)
            seen, reward, home, cut, _ = world.step(action_1A[0].numpy())
            steps.append((float(q_1M.min() if twins else q_1M[0, 0]), float(logprob_1), reward))
        came = after = 0.0
        for value, logprob, reward in reversed(steps if home else []):
            came = reward + gamma * after
            apart.append(value - came)
            after = came - alpha * logprob
    return float(np.mean(apart)) if apart else float("nan")


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer, metrics, cpu = campaign.timed(run_of(*job), STEPS)
    after = trainer.evaluate().metrics()
    found = {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "return": round(after["eval/score"], 2),
        "inside": round(after["eval/cost"], 2),
        "bias": round(bias(trainer, arm == "sac"), 2),
    }
    trainer.close()
    if "q/deviation" in metrics:
        found["deviation"] = round(metrics["q/deviation"], 2)
    return {**found, "cpu": round(cpu, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
