"""The model that the package ships."""

from __future__ import annotations

from gimbal.advantages import ReturnToGo
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.engines.offline import Offline
from gimbal.environments.demonstrations import Demonstrations
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives import Likelihood
from gimbal.policies.token import CausalLM
from gimbal.runtime.run import Run
from gimbal.workflows.demonstrated import Demonstrated

STEPS, PROMPTS = 4000, 96


def tiny_base() -> Run:
    """gimbal-tiny from scratch: SFT on reasoned, flawed and unreasoned solutions, so that it can reason but rarely does.

    docs/log.md has its evaluation, and the interval that another run of this recipe must reach.
    """
    return Run(
        policy=CausalLM(fresh=True),
        engine=Offline(),
        workflow=Demonstrated(),
        tasks=Demonstrations(size=STEPS * PROMPTS),
        curriculum=Epochs(shuffle=False),
        prompts_per_step=PROMPTS,
        num_generations=1,
        max_staleness=0,
        objective=Likelihood(),
        advantage=ReturnToGo(),
        anchor=Behavior(),
        optimization=Optimization(
            learning_rate=2e-3, beta2=0.99, weight_decay=0.01, warmup_steps=100, decay="cosine", microbatch_tokens=8192
        ),
        steps=STEPS,
        checkpoint_every=500,
        record_every=0,
    )
