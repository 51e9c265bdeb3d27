"""Writes the untrained network of gimbal-scales: python benchmarks/scales_base.py DIRECTORY

A BERT of transformers reads a class and, behind it, the pixels of a digit at 2 x 2, 4 x 4 and 8 x 8, one token each, of which those of
the scale to be drawn are masked; 47 k parameters. Then, with the weights of the first run for the second:

    gimbal train next_scale_sft policy.model=DIRECTORY steps=400 optimization.learning_rate=4e-3
    gimbal train next_scale_sft policy.model=RUN/model steps=100 optimization.learning_rate=1e-3 seed=1

That other tokens are never drawn was put into the shipped weights after this training, not before it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from gimbal.ops.scales import LEVELS
from gimbal.policies.images import NEVER

MASK, CELLS = "<mask>", 84
CLASSES = tuple(f"class {number}" for number in range(10))


def tokenizer_of() -> PreTrainedTokenizerFast:
    """One token for each level, and one for each class."""
    words = {word: place for place, word in enumerate(("<pad>", MASK, "any", *CLASSES, *LEVELS))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"class \d|any|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", mask_token=MASK, unk_token="<pad>", model_max_length=1 + CELLS
    )


def main(directory: Path) -> None:
    torch.manual_seed(0)
    tokenizer = tokenizer_of()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=1 + CELLS,
        type_vocab_size=1,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(config).eval()
    with torch.no_grad():  # what is no pixel is never drawn, and its logit has no gradient
        model.get_output_embeddings().bias[: len(tokenizer) - len(LEVELS)] = NEVER
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
