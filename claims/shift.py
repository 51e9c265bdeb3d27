"""Weights that fall with age, where the right answer changes: Sample Weight Decay against uniform replay (arXiv:2604.01913).

**Setting.** One step, an observation o uniform in [-1, 1], an action a in [-1, 1], and the reward -(a - o)^2; after 1,000 actions it is
-(a + o)^2, after 2,000 again -(a - o)^2, and 3,000 actions in all. SAC with a discount of 0 acts and learns, one move by a minibatch of
128 for every second action, networks of 64 x 64; the buffer forgets nothing. Arms: *uniform*, any action as likely as any other;
*swd*, `AgeDecay` with a span of 1,000 and at least a tenth.

**Figures.** The mean reward of all actions after the first change; *first*, that of the 1,000 before it. *gradient*, the mean norm of
the critic's gradient in the 50 moves after each change, shows the mechanism: uniform draws dilute what is new.

**Rule.** Each arm at the better of 1e-3 and 3e-3 by one run of seed 100, then seeds 0 to 4. An arm is above another if the interval of
the difference of their rewards, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above 0. *Forgetting helps
after a change* if *swd* is above *uniform*.

**Limits.** What is old here is wrong, which is more than the paper's dilution; a bandit, one span, no environment that stays as it is,
where forgetting may cost something.

Written before its runs; a run of *swd* with 300 actions, 100 between changes (seed 7), had shown only that it runs.

    python claims/shift.py     # goes on from claims/shift.json; two minutes of one idle core
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.preferences import AgeDecay, Uniform
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.learner import Learner
from gimbal.learning.method import Optimization
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.ops import philox
from gimbal.policies.control import Steps
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("swd", "uniform"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "reward")
COMPARED = {"forgetting helps after a change": ("swd", "uniform")}
PREFERENCE = {"swd": AgeDecay(span=1_000.0), "uniform": Uniform()}
ACTIONS, PHASE, AT_ONCE, NEAR = 3_000, 1_000, 10, 100
SIZES = {"observations": 1, "actions": 1}


def store_of(arm: str) -> Transitions:
    return Transitions(minibatch=128, update_to_data=0.5, learning_starts=100, preference=PREFERENCE[arm])


def learner_of(rate: float, seed: int) -> Learner:
    rates = Optimization(learning_rate=rate, critic_learning_rate=rate, beta2=0.999, max_grad_norm=math.inf)
    update = SoftActorCritic(
        critic=ActionValues(**SIZES), gamma=0.0, temperature_learning_rate=rate, optimization=rates
    )
    return Learner(SquashedGaussian(**SIZES).load(seed), update, seed=seed)


def goal(done: int) -> int:
    """Of the action, as a multiple of the observation."""
    return 1 - 2 * (done // PHASE % 2)


def acted(learner: Learner, done: int, draws: np.random.Generator) -> TrainBatch:
    """Episodes of one step by the present policy."""
    seen_K1 = torch.from_numpy(draws.uniform(-1, 1, (AT_ONCE, 1)).astype(np.float32))
    with torch.no_grad():
        action_K1, _ = learner.policy.draw(seen_K1, learner.policy.noise(draws, AT_ONCE), torch.ones(AT_ONCE))
    steps = Steps(
        observation_NSO=seen_K1[:, None],
        action_NSA=action_K1[:, None],
        final_NO=seen_K1,
        length_N=torch.ones(AT_ONCE, dtype=torch.long),
        terminated_N=torch.ones(AT_ONCE, dtype=torch.bool),
    )
    mask_NS = torch.ones(AT_ONCE, 1, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, reward_NS=-(action_K1 - goal(done) * seen_K1).square(), decisions=steps)


def measure(job: tuple[str, float, int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    store, learner, draws = store_of(arm).start(seed), learner_of(rate, seed), philox("shift", seed)
    start, rewards, norms = time.process_time(), list[float](), list[float]()
    for done in range(0, ACTIONS, AT_ONCE):
        batch = acted(learner, done, draws)
        rewards.append(float(batch.reward_NS.mean()))
        metrics = learner.step(learner.prepare(store.take(batch)))
        if done >= PHASE and done % PHASE < NEAR:
            norms.append(metrics["grad_norm/critic"])
    before, after = np.split(np.array(rewards), [PHASE // AT_ONCE])
    figures = {"reward": np.mean(after), "first": np.mean(before), "gradient": np.mean(norms)}
    named = {"arm": arm, "rate": rate, "seed": seed}
    cpu = round(time.process_time() - start, 1)
    return {**named, **{name: round(float(x), 4) for name, x in figures.items()}, "cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
