"""A run of TRL's GRPOTrainer on the model of a gimbal trainer, marked as the runs of composed.py are."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from gimbal.policies.token import TokenPolicy
from gimbal.rewards._reasoning import make
from gimbal.runtime import device
from gimbal.runtime.local import Trainer

Mark = tuple[int, float, float]  # tokens, seconds, held-out pass@1
MOST_STEPS = 120  # of 3,000 tokens each


def train(
    trainer: Trainer,
    marks: list[Mark],
    enough: Callable[[Sequence[Mark], float], bool],
    due: Callable[[Sequence[Mark], float], bool],
    held_out: Callable[[Trainer], float],
) -> int:
    """Train the policy of ``trainer`` in place by TRL, with sizes, tasks and rate of its run; appends marks, returns steps."""
    import datasets
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    run, policy = trainer.run, trainer.learner.policy
    assert isinstance(policy, TokenPolicy)
    device.prepare(1)  # one thread, and denormals flushed: both sides alike
    width, drawn, apart = run.num_generations, [0], [0.0]
    score_texts, _ = make()

    def reasoning(prompts, completions, completion_ids, task, **_: Any) -> list[float]:
        drawn[0] += sum(map(len, completion_ids))
        scores: list[float] = []
        for first in range(0, len(task), width):
            asked = run.tasks[task[first]]
            entry = {"answer": asked.answer} | {name: asked.columns[name] for name in ("question", "metadata")}
            texts = completions[first : first + width]
            parameters = json.dumps(dict(asked.columns["parameters"]))
            scores += score_texts(asked.source, parameters, entry, texts, "<answer>", "</answer>")
        return scores

    class Marks(TrainerCallback):
        def on_step_end(self, args, state, control, **_: Any):
            begin = time.process_time()
            if due(marks, drawn[0]):
                marks.append((drawn[0], round(begin - start - apart[0], 2), held_out(trainer)))
            control.should_training_stop = enough(marks, drawn[0])
            apart[0] += time.process_time() - begin
            return control

    rows = [{"prompt": run.tasks[index].prompt, "task": index} for index in range(MOST_STEPS * run.prompts_per_step)]
    with tempfile.TemporaryDirectory() as scratch:
        theirs = GRPOTrainer(
            model=policy.model,
            processing_class=AutoTokenizer.from_pretrained(run.policy.path),
            reward_funcs=reasoning,
            train_dataset=datasets.Dataset.from_list(rows),
            callbacks=[Marks()],
            args=GRPOConfig(  # its defaults agree on the rest: temperature 1, no KL, advantages scaled by group, clipping at 1.0
                output_dir=scratch,
                seed=run.seed,
                max_steps=MOST_STEPS,
                per_device_train_batch_size=run.prompts_per_step * width,
                num_generations=width,
                max_completion_length=run.sampling.max_length,
                learning_rate=run.optimization.learning_rate,
                lr_scheduler_type="constant",
                adam_beta2=run.optimization.beta2,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                save_strategy="no",
                disable_tqdm=True,
            ),
        )
        start = time.process_time()
        theirs.train()
    trainer.close()
    return theirs.state.global_step
