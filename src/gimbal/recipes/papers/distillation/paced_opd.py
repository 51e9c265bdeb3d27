from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.recipes.papers.distillation.opd import opd
from gimbal.runtime.run import Run


def paced_opd() -> Run:
    """PACED (arXiv:2603.11178): on-policy distillation on tasks that the student solves sometimes, sampled by p (1 - p).

    p is the student's pass rate by `rewards`, which choose the tasks and train nothing; a prior of .25 instead of 1 believes a few
    rollouts, as published, where p is their share. Published: before it a stage on texts of the teacher's, which is `sft` on rows that
    `gimbal eval --keep` wrote with it, then `policy.model=runs/SFT/model` here.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(opd(), **AGAIN, curriculum=Frontier(prior=0.25))
