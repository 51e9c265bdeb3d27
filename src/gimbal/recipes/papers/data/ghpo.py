from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.environments.worked import Worked
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.expected import Expected
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import HeldOut, Run

HARDER = {"min_terms": 3, "max_terms": 6, "min_digits": 2, "max_digits": 2}


def ghpo() -> Run:
    """GHPO (arXiv:2507.10628): repeats sums that a whole group got wrong, with the start of the solution as a hint.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    held_out = replace(held_out_tasks(size=256), parameters=HARDER)
    return replace(
        grpo(),
        tasks=Worked(tasks=replace(training_tasks(), parameters=HARDER, exclude=held_out)),
        held_out=HeldOut(tasks=held_out, samples=4),
        # gimbal-tiny reads a hint as the start of its own working.
        curriculum=Hinted(right="reasoning", template="{prompt}<think>{hint}"),
        filters=(Superseded(),),
        sampling=Sampling(max_length=96),
        rewards=(
            ReasoningScore(),
            Pattern(pattern=r"(?s)(<think>)?.*</think>\s*<answer>.+</answer>", weight=0.5),
            Expected(column="hint", name="hint", weight=0.0),
        ),
    )
