"""What caution in learning is worth when transitions are not as they were: DR-RPO on an American put (arXiv:2510.14246).

**Setting.** `environments.tabular.put`: eleven prices, ten steps; 1,000 episodes of the put as it is. Arms: *robust*, DR-RPO within .1
of total variation; *greedy*, that without its softmax (eta 1e6 in place of 100), which is robust optimistic value iteration;
*trailing*, that of *robust* with the policy of the episode before as its reference (eta 1); *plain*, *robust* with a radius of 0.
Figure: the last policy's return, computed exactly, where at each step the worst transitions within .1 come (of the best policies, .115
and .068 of one that is best for the put as it is); beside it that of the put as it is (.220 and .246).

**Rates.** Each arm at the best of four constants of its bonus, .01, .03, .1 and .3, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Caution holds* if *robust* is above *plain*; *its softmax helps* if *robust* is above
*greedy*; *trailing helps* if *trailing* is above *robust*.

**Limits.** A table with rewards that are known; one problem, one radius, that of the test.

Written before its runs, after a sweep of seed 0 in which .1126 to .1154 came with *robust* and *greedy* at .1, .0706 to .0781 with
*plain*. In that sweep a prior of 1 in place of .01, in the denominators of frequencies, made *plain* as cautious as *robust*.

    python claims/robust.py       # goes on from claims/robust.json; a minute
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal.environments.tabular import put
from gimbal.environments.uncertain import TotalVariation, worth
from gimbal.learning.robust import RobustPolicyOptimization

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("robust", "greedy", "trailing", "plain"), (0.01, 0.03, 0.1, 0.3), (0, 1, 2, 3, 4), "worst case")
EPISODES, RADIUS = 1_000, 0.1
COMPARED = {
    "caution holds": ("robust", "plain"),
    "its softmax helps": ("robust", "greedy"),
    "trailing helps": ("trailing", "robust"),
}

Job = tuple[str, float, int]  # arm, bonus, seed


def method_of(arm: str, bonus: float) -> RobustPolicyOptimization:
    return RobustPolicyOptimization(
        uncertainty=TotalVariation(radius=0.0 if arm == "plain" else RADIUS),
        eta={"greedy": 1e6, "trailing": 1.0}.get(arm, 100.0),
        trailing=arm == "trailing",
        bonus=bonus,
    )


def measure(job: Job) -> dict[str, Any]:
    arm, bonus, seed = job
    start, problem = time.process_time(), put()
    policy_HSA = method_of(arm, bonus)(problem, EPISODES, np.random.default_rng(seed))
    figures = {
        "worst case": worth(problem, policy_HSA, TotalVariation(radius=RADIUS)),
        "as it is": worth(problem, policy_HSA),
    }
    found = {name: round(value, 4) for name, value in figures.items()}
    return {"arm": arm, "rate": bonus, "seed": seed, **found, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
