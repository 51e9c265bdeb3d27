"""Trains gimbal-sudoku, the masked language model that the package ships: python benchmarks/sudoku_base.py DIRECTORY

A BERT of transformers, of 108 k parameters, reads a grid of 4 x 4 with some digits given and, behind it, 16 cells of which some are
masked. Each text has 4 to 10 digits given, and a share of its cells masked that is drawn uniformly; the loss is the mean cross-entropy
of the masked cells, each text's weighed by 1 / its share (LLaDA, arXiv:2502.09992). Half of the texts end with a row of the grid before
the last, as block diffusion shows them. About a minute of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from averaged import averaged
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from gimbal.environments.sudoku import CELLS, DIGITS, EMPTY, SIDE, grids

STEPS, BATCH, RATE, AVERAGE = 900, 128, 3e-3, 0.99
MASK = "<mask>"


def tokenizer_of() -> PreTrainedTokenizerFast:
    """One token for each character."""
    words = {word: place for place, word in enumerate(("<pad>", MASK, EMPTY, *DIGITS))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", mask_token=MASK, unk_token="<pad>", model_max_length=2 * CELLS
    )


def main(directory: Path, steps: int = STEPS) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    tokenizer = tokenizer_of()
    mask, empty = (tokenizer.convert_tokens_to_ids(word) for word in (MASK, EMPTY))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=2 * CELLS,
        type_vocab_size=1,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(config).eval()  # without dropout
    grid_KC = torch.tensor([tokenizer.encode(grid) for grid in grids()])

    def loss(step: int) -> torch.Tensor:
        grid_BC = grid_KC[torch.randint(len(grid_KC), (BATCH,))]
        order_BC = torch.rand(BATCH, CELLS).argsort(-1).argsort(-1)
        clues_BC = torch.where(order_BC < torch.randint(4, 11, (BATCH, 1)), grid_BC, empty)
        share_B1 = torch.rand(BATCH, 1).clamp(min=1 / CELLS)
        masked_BC = torch.rand(BATCH, CELLS) < share_B1
        seen = CELLS if step % 2 else SIDE * int(torch.randint(1, SIDE, ()))
        text_BL = torch.cat([clues_BC, grid_BC.masked_fill(masked_BC, mask)], 1)[:, : CELLS + seen]
        logits_BSV = model(input_ids=text_BL).logits[:, CELLS:]
        loss_BS = torch.nn.functional.cross_entropy(logits_BSV.mT, grid_BC[:, :seen], reduction="none")
        return (loss_BS * masked_BC[:, :seen] / share_B1).mean()

    averaged(model, loss, steps, rate=RATE, average=AVERAGE, warm=0.1).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
