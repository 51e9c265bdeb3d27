"""Masked text in blocks: more tokens in a forward pass at the same accuracy? (LightningRL)

**Setting.** That of `masked.py`, with its two arms, in block diffusion: the 16 cells of a grid are four blocks, a line each, and a
block is filled in before the network sees the next, in training and in the evaluation.

**Figures.** Those of `masked.py`; *speed* is the most tokens per pass at a share of 0.75 right grids, since in blocks the base model
has 0.78 with one cell a pass, 0.78 (2.37 tokens a pass) at a threshold of 0.9 and 0.72 (3.20) at 0.6, and no more than 4 are possible.

**Rule.** That of `masked.py`: each arm at the better of 1e-4 and 3e-4 by the speed of one run of seed 100, then seeds 0 to 4.
*LightningRL is faster in blocks* holds if the interval of the difference of their speeds, over all 25 pairs of seeds (exact, 96.8 %:
the third from either end), lies above 0; it is refuted if the interval lies below 0, and else undecided.

**Limits.** Those of `masked.py`, but for the blocks; and gimbal-sudoku was trained on whole grids, never in blocks. Both arms sit at
the lower of the two rates, *lightning* by a tie (2.985 and 2.976).

Written before its runs, after that reading of the base model.

    python claims/masked_blocks.py --processes 1     # goes on from claims/masked_blocks.json; four minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import masked

from gimbal.policies.commits import MaskedSampling
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
TUNED, COMPARED = masked.TUNED, {"LightningRL is faster in blocks": ("lightning", "grpo")}
BLOCK, SHARE = 4, 0.75


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = masked.run_of(arm, rate, seed)
    assert isinstance(run.sampling, MaskedSampling)
    return replace(run, sampling=replace(run.sampling, block=BLOCK))


def measure(job: masked.Job) -> dict[str, Any]:
    return masked.measured(run_of(*job), job, SHARE)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
