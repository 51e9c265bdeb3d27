from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupNormalized
from gimbal.environments.gym import Gymnasium
from gimbal.environments.merging_plans import AHEAD, PLANS
from gimbal.objectives import EntropyBonus
from gimbal.policies.control import StepSampling
from gimbal.policies.ranked import Ranked
from gimbal.recipes.papers.control.perlad import perlad
from gimbal.runtime.run import Run


def rad_2() -> Run:
    """RAD-2's discriminator (arXiv:2604.15308) on merging: it learns which of a flow's 16 plans to play, from groups of 8 episodes.

    policy.flow=DIRECTORY names the flow, of `gimbal train idql tasks.dataset=gimbal/merging/plans-v0`. Half of each plan is played
    before the next choice. Cars, scenes and evaluation are `perlad`'s. Not shown here: suites of driving scenes, with maps, cameras and
    many kinds of road users.
    """
    base = perlad()
    assert base.held_out is not None
    held = Gymnasium(environment=f"{PLANS}@logs=0", seed=2, size=100)
    return replace(
        base,
        policy=Ranked(observations=11, actions=AHEAD),
        tasks=Gymnasium(environment=PLANS, seed=1),
        held_out=replace(base.held_out, tasks=held),
        sampling=StepSampling(max_length=32),
        prompts_per_step=4,
        num_generations=8,
        advantage=GroupNormalized(),
        shaping=(),
        regularisers=(EntropyBonus(coef=0.01),),
        critic=None,
        optimization=replace(base.optimization, learning_rate=1e-2),
        steps=20,
    )
