"""One recipe, run four ways: in process, on Ray, by vLLM in process and by a vLLM server.

The engines have random numbers of their own, so it draws as good as greedily, where all must draw the same tokens; what is left to
tell them apart is arithmetic. Prompts are compared with one another, for rollouts of one prompt would be alike.
"""

from small import small_run

from gimbal.advantages import ReturnToGo, Whitened
from gimbal.learning.method import Optimization
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime.local import Trainer

STEPS = 3


def recipe(**changes):
    return small_run(
        **{
            "policy": CausalLM(),  # whose best answers differ from prompt to prompt
            "sampling": Sampling(max_length=20, temperature=0.05),
            "prompts_per_step": 12,
            "num_generations": 1,
            "advantage": ReturnToGo(),
            "shaping": (Whitened(),),
            "optimization": Optimization(learning_rate=1e-4),
            "steps": STEPS,
            **changes,
        }
    )


def run(**changes):
    """(the metrics of each step, the tokens of each rollout, the weights at the end)."""
    trainer = Trainer(recipe(**changes))
    metrics, texts = [], []
    try:
        for _ in range(STEPS):
            found, groups, _ = trainer.advance()
            metrics.append(found)
            texts.append([rollout.text for group in groups for rollout in group.rollouts])
        return metrics, texts, {name: tensor.clone() for name, tensor in trainer.learner.policy.state_dict().items()}
    finally:
        trainer.close()
