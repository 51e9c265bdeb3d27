"""The loop of docs/elsewhere.md trains in TRL's trainer, word for word (where TRL is installed: the extra `bench`)."""

import re
from pathlib import Path

import pytest

from gimbal.policies.token import CausalLM

PAGE = Path(__file__).parents[2] / "docs" / "elsewhere.md"


def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]


def test_the_trainer_of_the_page_moves_the_weights(tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    from transformers import AutoTokenizer

    names = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0], names)
    trainer = names["Corrected"](
        model=CausalLM().load().model,
        processing_class=AutoTokenizer.from_pretrained(CausalLM().path),
        reward_funcs=digits,
        train_dataset=datasets.Dataset.from_list([{"prompt": f"{n} + 12 =\n"} for n in range(30)]),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            learning_rate=1e-3,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
        ),
    )
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    moved = [
        float((new - old).detach().abs().max()) for new, old in zip(trainer.model.parameters(), before, strict=True)
    ]
    assert max(moved) > 1e-4


@pytest.mark.slow
def test_the_learner_of_the_page_takes_a_step_no_larger_than_it_says(single_thread):
    names = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1], names)
    before = CausalLM().load().weights()
    moved = max(float((weight - before[name]).abs().max()) for name, weight in names["policy"].weights().items())
    assert 0 < moved < 1.1e-6 and names["metrics"]["grad_norm"] > 0
