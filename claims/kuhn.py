"""Self-play at a table of two seats: how far from an equilibrium one model ends that plays both.

**Setting.** The recipe ``kuhn``, on Kuhn poker, seeds 0 to 4, from ``gimbal-tiny-player``, which was taught the legal actions alone
(``tiny_player``: 30 steps of SFT of ``gimbal-tiny`` on random legal play, 4 seconds of the processor, which are not counted). NashConv,
of OpenSpiel, is what both seats together could win by the best answer to the policy: 0 at an equilibrium, 0.917 for the uniform policy.
It is exact, at the weights of the last step; its course is taken every 25 steps and counts for nothing. Illegal actions are left out
of it and the rest scaled; *illegal* is the largest mass on them at any decision and the share of matches that they end (new runs
only: it is empty for earlier ones).

*resets*: the recipe as it was before. The reference is set to the policy at steps 100 and 200 instead of following it, with KL 0.2
instead of 0.4, 400 steps of 24 deals of 4 matches instead of 300 of 64 deals of 8, and gradients clipped to a norm of 1 instead of 100.
*fewer*: the recipe with 48 deals instead of 64, as it was for a day.
*leduc*: the recipe on Leduc poker, with 936 information states instead of 12 (the uniform policy: 4.747).
*small*: the recipe ``leduc``, written after *leduc* had missed the bar. It starts from ``gimbal-tiny-leduc``, which was taught the
legal actions alone (``tiny_leduc``, 20 seconds of the processor, which are not counted), and plays
``leduc_poker(suit_isomorphism=True)``: cards of one rank are one card, which leaves 288 of the states. It is the same game, and a
policy has the same NashConv in both (a test says so). It had 64 deals a step and 300 steps. Its first seed missed the bar, and the
others were not run.
*wide*: 256 deals a step and 120 steps, written after *small* had missed the bar too. Its second seed missed it, and the others were
not run.
*slow*: the recipe ``leduc`` as it is now, written after *wide* had missed the bar. Its reference follows a fourth as fast, and each
decision counts alike (``SequenceSum``) where *small* and *wide* weighted it by 1 / the decisions of its episode.

**Seconds** are of the training steps, of the processor and by the clock on the wall; one thread. The machine has two cores, and other
programs shared them (the load is recorded), so the bar is of the processor.

**Rule.** The acceptance point is reached if in each of the 5 seeds of *kuhn* NashConv is at most 0.1 after the last step, in at most
300 seconds of the processor, and in each seed of *leduc* at most 1.0; since *leduc* missed it, in each of the 5 seeds of *small*, and
since *small* missed it, of *wide*, and since *wide* missed it, of *slow*. Median and worst are reported beside it. Leduc poker has
no bar of seconds.

The rule is as it was. It was held against *resets* first and then against *fewer*, with the same seeds; *fewer* was stopped after four
of them, as one had missed the bar. That setting came from a search in tabular form (a
logit for each of 12 decisions: 0.05 in the median and 0.09 at worst). The setting of *kuhn* was chosen without these seeds and
written down before its first run: of about 90 settings in a linear model of the first weights' gradients (0.3 seconds a run), the
best ones with the model itself on matches that were simulated for all states at once, seeds 10 to 14. There 64 deals of 8 matches
end at 0.062 to 0.077 after 300 steps (five seeds), 24 deals at 0.080 and 0.084 after 400 (two). *fewer* had 48 deals for the sake of
the seconds, which nobody had tried; *kuhn* has the 64 of the trials. Neither it nor *leduc* was run before. The setting of *small*
was chosen by about 40 runs of a simulator that walks the exact tree, seeds 10 to 14. Its first version (KL 1.5, 200 steps) ended at
1.08 in one run in the library, seed 13, and gained nothing over the last 80 steps. It has KL 2 and 300 steps instead, with which the
simulator was at 0.96 after 200 and still falling; in the library it was not run before these seeds (docs/log.md). The setting of
*wide* was chosen by two pilots in the library, seed 14, both of 160 steps: 64 deals had 1.12, 0.93, 0.95 and 1.15 after 100, 120, 140
and 160 steps, 128 deals 1.05, 0.82 and 0.90 after 100, 120 and 140. 256 deals, and a rate that reaches 0 at step 120, were not run
before these seeds. The setting of *slow* was chosen by a dozen runs of a simulator with the same model (docs/log.md), seeds 10 to 14,
the last of which had 0.90, 0.79 and 0.90 after 120, 150 and 180 of 180 steps, the one before 1.04 after 120 of 120. 160 steps were
not run before these seeds, and nothing of it in the library.

    python claims/kuhn.py           # goes on from claims/kuhn.json
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal.environments.games import Deals, Game, Illegal, illegal, nash_conv
from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.ops import SequenceMean
from gimbal.policies.token import TokenPolicy
from gimbal.recipes import function
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.self_play import SelfPlay, chances_of

RECORD = Path(__file__).with_suffix(".json")
KUHN, LEDUC = "kuhn_poker", "leduc_poker"
ARMS: Mapping[str, int] = {"resets": 5, "fewer": 4, "kuhn": 5, "leduc": 1, "small": 1, "wide": 2, "slow": 5}  # seeds
EVERY = 25  # steps between points of the course


def run_of(arm: str, seed: int) -> Run:
    run = replace(function("leduc" if arm in ("small", "wide", "slow") else "kuhn")(), seed=seed, threads=1)
    if arm in ("small", "wide"):
        deals, steps = (64, 300) if arm == "small" else (256, 120)
        optimization = replace(run.optimization, learning_rate=2e-3)
        run = replace(run, aggregation=SequenceMean(), reference_rate=0.03, optimization=optimization)
        return replace(run, prompts_per_step=deals, steps=steps)
    if arm == "resets":
        optimization = replace(run.optimization, max_grad_norm=1.0)
        pull = {"regularisers": (ExactKL(coef=0.2),), "reference_rate": 0.0, "reference_resets": (100, 200)}
        return replace(run, prompts_per_step=24, num_generations=8, steps=400, optimization=optimization, **pull)
    if arm == "fewer":
        return replace(run, prompts_per_step=48)
    if arm == "leduc":
        return replace(run, tasks=Deals(game=LEDUC), workflow=SelfPlay(game=Game(name=LEDUC)))
    return run


def measure(job: tuple[str, int]) -> dict[str, Any]:
    arm, seed = job
    run, wall, cpu = run_of(arm, seed), 0.0, 0.0
    trainer = Trainer(run)
    trainer.begin()
    near, left_out = apart(trainer, run)
    course = [near]
    for step in range(1, run.steps + 1):
        began = time.perf_counter(), time.process_time()
        trainer.advance()
        wall, cpu = wall + time.perf_counter() - began[0], cpu + time.process_time() - began[1]
        if step % EVERY == 0 or step == run.steps:
            near, left_out = apart(trainer, run)
            course.append(near)
    trainer.close()
    return {
        "arm": arm,
        "seed": seed,
        "before": course[0],
        "after": near,
        "illegal": {name: round(value, 4) for name, value in left_out._asdict().items()},
        "seconds": round(wall, 1),
        "cpu": round(cpu, 1),
        "load": round(os.getloadavg()[1], 1),
        "course": course,
    }


def apart(trainer: Trainer, run: Run) -> tuple[float, Illegal]:
    """How far the present weights are from an equilibrium, and what that leaves out."""
    policy = trainer.learner.policy
    assert isinstance(policy, TokenPolicy) and isinstance(run.workflow, SelfPlay)
    game = run.workflow.game.name
    chances = chances_of(policy, game)
    return round(nash_conv(game, chances), 4), illegal(game, chances)


def left(runs: campaign.Runs) -> Iterator[Iterable[tuple[str, int]]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for arm, seeds in ARMS.items() for seed in range(seeds) if (arm, seed) not in done]


def told(found: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in found.items() if name != "course")


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
