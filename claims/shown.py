"""Verdicts of one judge on several tasks, beside scores of each task: which teach more? (OneReward, arXiv:2508.21066)

**Setting.** gimbal-digits-shown completes digits of which a part is shown: it fills a square of 4x4 pixels (half of the tasks),
extends a half (a quarter), both told the class, and removes what is in a square (a quarter). Paths of six steps of the ODE; 24
learner steps on 16 tasks with two samples each; the reward of the clean sample predicted in one of the last three steps, its
gradient climbed, with a pull to the base of 0.1. Programs judge: a fill and an extension by the distance to the nearest real digit
of the class and by what was shown and is kept, a removal by the ink in the square and by what is kept; even rows of the data for
the distance.

*judge* is the recipe `one_reward`: in each criterion P(better than a sample of the base for the same task) =
sigmoid((s - s of the rival) / scale), at most 0.9, the mean of a task's two. *scores*: s / (4 scale) in place of P, each task's
own reward, which has P's slope where both pictures are alike and no rival. *base*: the model before.

**Figures**, on 198 digits that the model was never shown, 66 of each kind, by the ODE: *usable* of a kind, the share of pictures
that meet all criteria of their task (distance at most 2.2 to an odd row of the class, or at most 0.1 of the ink; error at most 0.2
where it was shown); *mean*, that of the three kinds; *least*, the lowest of the three.

**Rule.** Each arm at the best of 5e-4 and 1e-3 by *mean* of one run of seed 100, then seeds 0 to 4, which also draw the tasks of
the evaluation. An arm is above another in a figure if the interval of the difference, over all 25 pairs of seeds (exact, 96.8 %:
the third from either end), lies above 0, and below if it lies below; otherwise it is undecided.

**Limits.** Programs stand for a judge that people taught. One pull for both arms. Two criteria a task, which hardly conflict. Both arms
sit at the higher of the two rates.

Written before its runs, after pilots of seed 100: at 1e-3 with this pull *judge* had a *mean* of 0.51 after 18 steps, *base* 0.39;
at 2e-3 it had 0.23 after 6 and 0.40 after 12. A judge that was a network of two layers, taught by 12,000 labelled pairs (right in
81 to 90 % of held-out ones), was climbed to 0.68 of its own P while *mean* fell to 0.13.

**After the runs**: the whole gain is in removals. *scores* is below *base* in fills (-.121; -.197 to -.045), undecided in extensions
(-.076; -.136 to .015) and above in removals (.864; .667 to .924). *judge* is undecided in fills (-.106; -.227 to .030) and extensions
(.000; -.136 to .121), and above in removals (.439; .227 to .561).

    python claims/shown.py --processes 1     # goes on from claims/shown.json; four minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import torch
from torch import Tensor

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.recipes.papers.denoising.one_reward import one_reward
from gimbal.rewards.digits import images
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples
from gimbal.rewards.shown_digits import CRITERIA, SCALE, UsablePicture, judged, shares
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
JUDGE, SCORES, BASE = "judge", "scores", "base"
STEPS, PULL, KINDS = 24, 0.1, ("extend", "fill", "remove")

Job = tuple[str, float, int]  # arm, learning rate, seed

TUNED = campaign.Tuned((JUDGE, SCORES, BASE), (5e-4, 1e-3), (0, 1, 2, 3, 4), "mean")
COMPARED = {
    "The judge teaches": (JUDGE, BASE),
    "It teaches the kind that is worst": (JUDGE, BASE, "least"),
    "It fills better": (JUDGE, BASE, "fill"),
    "It extends better": (JUDGE, BASE, "extend"),
    "It removes better": (JUDGE, BASE, "remove"),
    "Verdicts teach more than scores": (JUDGE, SCORES),
    "And the worst kind": (JUDGE, SCORES, "least"),
}


@dataclass(frozen=True, kw_only=True)
class Scores(AbstractPairJudge):
    """Each task's own reward: what its programs say, whoever the rival is."""

    name: str = "judge"

    def beats(self, x_ND: Tensor, rival_ND: Tensor, asked: AskedSamples) -> Tensor:
        own_NE = shares(images(x_ND), asked, slice(0, None, 2))
        return (own_NE / own_NE.new_tensor([4 * SCALE[name] for name in CRITERIA])).where(judged(asked), torch.nan)


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = one_reward()
    assert isinstance(run.update, RewardGradient) and run.held_out is not None
    optimization = replace(run.update.optimization, learning_rate=rate)
    tasks = run.held_out.tasks
    assert isinstance(tasks, ShownPictures)
    run = replace(
        run,
        seed=seed,
        steps=0 if arm == BASE else STEPS,
        held_out=replace(run.held_out, tasks=replace(tasks, seed=1000 + seed)),
        update=replace(run.update, coef=PULL, optimization=optimization),
    )
    return replace(run, rewards=(UsablePicture(weight=0.0), Scores())) if arm == SCORES else run


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    trainer, start = Trainer(run_of(*job)), time.process_time()
    trainer.begin()
    for _ in range(0 if arm == BASE else STEPS):
        trainer.advance()
    after = trainer.evaluate().metrics()
    trainer.close()
    kinds = {kind: round(after[f"eval/greedy_usable/{kind}"], 4) for kind in KINDS}
    found = {"mean": round(sum(kinds.values()) / len(kinds), 4), "least": min(kinds.values()), **kinds}
    return {"arm": arm, "rate": rate, "seed": seed, **found, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
