from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.papers.data.dars import dars
from gimbal.runtime.run import Run


def dars_b() -> Run:
    """DARS-B (arXiv:2508.13755): DARS plus breadth: four times the tasks per step, with two full-batch updates."""
    run = dars()
    optimization = replace(run.optimization, epochs=2)
    return replace(run, prompts_per_step=4 * run.prompts_per_step, optimization=optimization)
