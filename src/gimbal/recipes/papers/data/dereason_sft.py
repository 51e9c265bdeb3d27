from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import ReturnToGo
from gimbal.engines.offline import Offline
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.environments.within import Within
from gimbal.environments.worked import Worked
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives import Likelihood
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.single import SingleTurn

MIXED = {"min_terms": 2, "max_terms": 6, "min_digits": 2, "max_digits": 2}
HELD_OUT = replace(held_out_tasks(size=256), parameters=MIXED)
ALL = Worked(tasks=replace(training_tasks(size=4096), parameters=MIXED, exclude=HELD_OUT))


def dereason_sft() -> Run:
    """DeReason, stage 1 (arXiv:2603.11193): SFT on the easy part of the tasks (short sums).

    Continue with stage 2 on the hard part: `gimbal train dereason policy.model=runs/NAME/model`.
    """
    run = grpo()
    return replace(
        run,
        engine=Offline(),
        workflow=Demonstrated(),
        tasks=Within(tasks=ALL, column="metadata.num_terms", upto=4.0),
        held_out=HeldOut(tasks=HELD_OUT, samples=4, engine=run.engine, workflow=SingleTurn(), rewards=run.rewards),
        sampling=Sampling(max_length=96),
        rewards=(),
        prompts_per_step=32,
        num_generations=1,
        max_staleness=0,
        objective=Likelihood(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
        anchor=Behavior(),
        optimization=Optimization(learning_rate=3e-4, warmup_steps=5, decay="cosine"),
    )
