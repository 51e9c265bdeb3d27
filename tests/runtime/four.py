"""One recipe, run four ways: in process, on Ray, by vLLM in process and by a vLLM server.

In process and on Ray it is the same bit for bit, as each rollout has random numbers of its own. vLLM in process and as a server draw
the same tokens, and reach the same weights but for rounding. Between these pairs only the distributions are the same, for vLLM
makes other random numbers of a seed: log-probabilities agree with the trainer's, and scores but for their own variance.
"""

from small import small_run

from gimbal.runtime.local import Trainer

STEPS = 3
ROLLOUTS = 32  # a step


def run(**changes):
    """(the metrics of each step, its texts, its scores, the weights at the end)."""
    trainer = Trainer(small_run(**{"prompts_per_step": 4, "num_generations": ROLLOUTS // 4, "steps": STEPS, **changes}))
    metrics, texts, scores = [], [], []
    try:
        for _ in range(STEPS):
            found, groups, _ = trainer.advance()
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            metrics.append(found)
            texts.append([rollout.text for rollout in rollouts])
            scores.append(sum(rollout.earned for rollout in rollouts) / len(rollouts))
        weights = {name: tensor.clone() for name, tensor in trainer.learner.policy.state_dict().items()}
        return metrics, texts, scores, weights
    finally:
        trainer.close()
