from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import SeatCentered
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.cases import Families
from gimbal.learning.separate import SeparateWeights
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import Run
from gimbal.workflows.case_memory import CaseMemory
from gimbal.workflows.lessons import EXTRACTOR, Lessons
from gimbal.workflows.retrieval import SuccessesFirst


def complementary_rl() -> Run:
    """Complementary RL (2026): half of the attempts read a lesson that a second model writes from past ones; both models train.

    Families whose digits change every 480 tasks, so that weights cannot hold them and experience can. A lesson is the digit that the
    extractor takes from four cases. There is no held-out set: no task comes twice, and after a change none is of known rules;
    role/guided/reward beside role/alone/reward is what lessons are worth.
    On-policy except for staleness: one update per batch, at a ratio of 1, where the published CISPO and clip have the same gradient.
    """
    run, answer = grpo(), ExactAnswer(opening="", closing="")
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=Lessons(
            cases=CaseMemory(retrieval=SuccessesFirst(), capacity=512, reward=answer),
            template="{prompt}{lesson}\n{prompt}",
        ),
        tasks=Families(families=12, period=480),
        curriculum=Epochs(shuffle=False),
        held_out=None,
        sampling=Sampling(max_length=4),
        rewards=(answer,),
        advantage=SeatCentered(scale=True),
        separate={EXTRACTOR: SeparateWeights(learning_rate=1e-3)},
        steps=120,
    )
