from __future__ import annotations

from dataclasses import replace

from gimbal.environments.recall import Streams
from gimbal.learning.separate import SeparateWeights
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.belief_state import ACTOR, BeliefState

SEES = "{prompt}{belief}<eos>{seen}"  # the believer's words, the end of its turn, and the newest line


def agent_brace() -> Run:
    """Agent-BRACE (arXiv:2605.11436): a model keeps a belief, and another acts on that and the newest observation alone.

    Streams of four lines of facts, of which each role sees one and what is believed of the others. Starts from gimbal-tiny-memory,
    whose words for a belief are the values that it keeps; it has none for how sure it is. Left out: the judge's reward for tracking.
    On-policy except for staleness, as grpo.
    """
    run = grpo()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=BeliefState(believe=SEES, act=SEES, answers=4, overlap=1),
        tasks=Streams(),
        held_out=HeldOut(tasks=Streams(seed=1, size=256), samples=1),
        sampling=Sampling(max_length=8),
        rewards=(),
        prompts_per_step=8,
        steps=15,
        separate={ACTOR: SeparateWeights()},
    )
