from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.environments.docking import STEP
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.her import her
from gimbal.runtime.run import UpdateRun

WAYS = "gimbal.environments.there_and_back:docking"


def there_and_back() -> UpdateRun:
    """Forward-backward (SERL, arXiv:2401.16013) of a point that is never reset: SAC with hindsight goes to its dock, and back."""
    run, sizes = her(), {"observations": 6, "actions": 2, "bound": STEP}
    assert isinstance(run.update, SoftActorCritic) and run.held_out is not None
    return replace(
        run,
        policy=SquashedGaussian(**sizes),
        tasks=Gymnasium(environment=WAYS, seed=1),
        held_out=replace(run.held_out, tasks=Gymnasium(environment=f"{WAYS}_resets", seed=2, size=20)),
        sampling=replace(run.sampling, max_length=1_000_000),
        update=replace(run.update, critic=ActionValues(**sizes), gamma=0.95, tau=0.02),
    )
