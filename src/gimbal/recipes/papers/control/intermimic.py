from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import Whitened
from gimbal.advantages.shapings.scaled import Scaled
from gimbal.controllers.ready import Ready
from gimbal.critics.mlp import ValueMLP
from gimbal.environments.gym import Gymnasium
from gimbal.objectives import ValueLoss
from gimbal.objectives.regularisers.reference_action import ReferenceAction
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.teachers import Teachers
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.runtime.run import HeldOut, Run

TOLD = "gimbal.environments.told_pendulum:ToldPendulum"
MASSES = (0.5, 1.0, 2.0)


def intermimic() -> Run:
    """A student of several teachers on its own states, then PPO once its critic is ready (InterMimic, arXiv:2502.20390).

    On pendulums of three masses. `reference.teachers` names a policy of each, trained there, as by `gimbal train sac
    tasks.environment=Pendulum-v1@m=0.5`. Two gates (`Ready`) open together: one brings PPO in (`shaping.1.factor`), the other lets
    imitation fade (`regularisers.1.coef`).

    Ours: the critic learns from the first step on, and the student alone acts. Not shown here: the teachers' rewards for imperfect
    motion capture, and bodies that meet objects.
    """
    base = pendulum()
    families = [
        Gymnasium(environment=TOLD, grid={"m": MASSES}, seed=seed, size=size) for seed, size in ((1, 10**6), (2, 60))
    ]
    return replace(
        base,
        policy=Gaussian(observations=4, actions=1),
        reference=Teachers(observations=4, actions=1, tells=3),
        tasks=families[0],
        held_out=HeldOut(tasks=families[1], samples=1),
        prompts_per_step=12,
        critic=ValueMLP(observations=4, scale=50.0),
        shaping=(Whitened(), Scaled(factor=0.0)),
        regularisers=(ValueLoss(coef=0.5), ReferenceAction()),
        controllers={"shaping.1.factor": Ready(), "regularisers.1.coef": Ready(closed=1.0, opened=0.1)},
    )
