"""A recipe that really trains, in a second or two: digits are paid for."""

from gimbal.advantages import GroupNormalized
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.objectives import ClippedRatio
from gimbal.policies.token import CausalLM, Sampling
from gimbal.rewards.pattern import Pattern
from gimbal.runtime.run import HeldOut, Run


def quick() -> Run:
    """Two steps of two groups."""
    prompts = [{"prompt": f"State the final answer: {n} + {n + 3} =\n", "answer": str(2 * n + 3)} for n in range(20)]
    return Run(
        policy=CausalLM(),
        engine=Native(slots=12, precision="float32"),
        tasks=Rows(rows=prompts[:16]),
        held_out=HeldOut(tasks=Rows(rows=prompts[16:]), samples=2),
        sampling=Sampling(max_length=6),
        rewards=(Pattern(pattern=r"(?s).*\d~.*"),),
        prompts_per_step=2,
        num_generations=4,
        advantage=GroupNormalized(),
        objective=ClippedRatio(),
        steps=2,
    )
