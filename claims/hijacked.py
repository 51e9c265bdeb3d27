"""How near two timescales bring a policy to the best that an attacker of bounded control leaves (arXiv:2305.17342), on tables.

**Setting.** `environments.contest.lanes`: one drives in two lanes for six steps, the other blocks one of them. The honest partner
blocks lane 0 with .2; an attacker takes over half of the steps (`Contest.hijacked`). The equilibrium of that contest is worth 1.1626,
as much as with an attacker in every step. Arms: *replies*, 1,000 moves of the policy, before each of which the attacker takes ten
(`TwoTimescales`); *turns*, one for one, as many gradient steps in all (5,500 moves); *exact*, 1,000 moves, each against exactly the
worst reply; *partner*, 1,000 moves beside the honest partner, without an attacker. Figure: *short*, by how much the policy's return
against its worst reply is below 1.1626, the mean over the last tenth of its moves, exactly. Seeds draw the first policy, uniformly.

**Rates.** Each arm at the best of .003, .01, .03, .1, .3, 1 and 3, by one run of seed 100. The last two were added after a first whole
record, in which the largest, .3, was the best of *replies* and of *turns*, with the same verdicts.

**Rule.** Seeds 0 to 4. An arm is shorter than another if the interval of the difference of their figures, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies above 0. *Training against an attacker helps* if *partner* is above *replies* in
*short*; *a quicker attacker helps* if *turns* is; *an exact one helps more* if *replies* is above *exact*.

**Limits.** One contest of two states with exact gradients. *exact* searches all replies, which tables alone allow. No arm has more than
11,000 gradient steps.

Written before its runs, after single runs of seed 0, 1,000 moves: at the best rate .07 with ten replies, .18 with one, .02 against
exact ones. With a quarter of the steps taken over, all arms reached the value at rates of .03 and above, so half was taken.

    python claims/hijacked.py       # goes on from claims/hijacked.json; two minutes of one core
"""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal.environments.contest import lanes
from gimbal.learning.hardened import TwoTimescales

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(
    ("replies", "turns", "exact", "partner"),
    (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    (0, 1, 2, 3, 4),
    "short",
    worth=lambda run: -run["short"],
)
COMPARED = {
    "training against an attacker helps": ("partner", "replies"),
    "a quicker attacker helps": ("turns", "replies"),
    "an exact one helps more": ("replies", "exact"),
}
PARTNER, SHARE, VALUE = np.array([[0.2, 0.8], [0.2, 0.8]]), 0.5, 1.162592163
ARMS = {
    "replies": (10, 1_000, SHARE),
    "turns": (1, 5_500, SHARE),
    "exact": (0, 1_000, SHARE),
    "partner": (1, 1_000, 0.0),
}

Job = tuple[str, float, int]  # arm, rate, seed


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start, (replies, moves, share) = time.process_time(), ARMS[arm]
    contest, attacked = lanes().hijacked(PARTNER, share), lanes().hijacked(PARTNER, SHARE)
    begin_HSA = np.random.default_rng(seed).dirichlet(np.ones(2), (contest.horizon, 2))
    policies = islice(TwoTimescales(rate=rate, replies=replies).policies(contest, begin_HSA), moves)
    short = [VALUE - attacked.worst(policy_HSA)[0] for policy_HSA, _ in islice(policies, moves - moves // 10, None)]
    figures = {"short": np.mean(short), "shortest": np.min(short), "longest": np.max(short)}
    found = {name: round(float(value), 4) for name, value in figures.items()}
    return {"arm": arm, "rate": rate, "seed": seed, **found, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
