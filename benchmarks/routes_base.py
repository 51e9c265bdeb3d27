"""Trains gimbal-routes, the masked planner that the package ships: python benchmarks/routes_base.py DIRECTORY

A BERT of transformers, of 111 k parameters, reads a grid of 5 x 5 with a start, a goal and blocked squares (GridRoutes) and, behind it,
the 8 squares of a shortest route, one of those there are. In half of each batch a share of the squares is masked, drawn uniformly, and
the loss is the mean cross-entropy of the masked ones, each text's weighed by 1 / its share (LLaDA, arXiv:2502.09992). The other half
learns to edit, as ReflectDrive-2 does (arXiv:2605.04647): the route is whole but perturbed, in its progress (its steps at half to one
and a half of their speed) or sideways (from one step on it is a square beside itself), and the loss is the mean cross-entropy of the
expert's squares at all of its own. Two minutes of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from averaged import averaged
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from gimbal.environments.grid_routes import MASK, STEPS, GridRoutes, shortest
from gimbal.rewards.route_score import BLOCKED, FREE, GOAL, LETTERS, SIDE, START

UPDATES, BATCH, RATE, AVERAGE, GRIDS = 1500, 128, 3e-3, 0.99, 20_000


def tokenizer_of() -> PreTrainedTokenizerFast:
    """One token for each character."""
    words = {word: place for place, word in enumerate(("<pad>", MASK, FREE, BLOCKED, START, GOAL, *LETTERS))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        mask_token=MASK,
        unk_token="<pad>",
        model_max_length=SIDE**2 + STEPS,
    )


def perturbed(start_B1: Tensor, route_BT: Tensor) -> Tensor:
    """Half of the routes at other speeds, half with a part that is a square beside itself."""
    count = len(route_BT)
    speed_B1, step_T = 0.5 + torch.rand(count, 1), torch.arange(1, STEPS + 1)
    other_BT = torch.cat([start_B1, route_BT], 1).gather(1, (speed_B1 * step_T).round().long().clamp(max=STEPS))
    row_BT, column_BT = route_BT // SIDE, route_BT % SIDE
    by_B1 = 2 * torch.randint(2, (count, 1)) - 1
    on_BT = step_T > torch.randint(STEPS, (count, 1))
    down_B1 = torch.rand(count, 1) < 0.5
    row_BT = (row_BT + by_B1 * (on_BT & down_B1)).clamp(0, SIDE - 1)
    column_BT = (column_BT + by_B1 * (on_BT & ~down_B1)).clamp(0, SIDE - 1)
    return other_BT.where(torch.rand(count, 1) < 0.5, row_BT * SIDE + column_BT)


def main(directory: Path, updates: int = UPDATES) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    tokenizer, drawn, tasks = tokenizer_of(), np.random.default_rng(0), GridRoutes(seed=0)
    mask, first = (tokenizer.convert_tokens_to_ids(word) for word in (MASK, LETTERS[0]))
    grids = [tasks[index].prompt for index in range(GRIDS)]
    grid_KC = torch.tensor([tokenizer.encode(grid) for grid in grids])
    start_K = torch.tensor([grid.index(START) for grid in grids])
    route_K2T = torch.tensor([[shortest(grid, drawn) for _ in range(2)] for grid in grids])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=SIDE**2 + STEPS,
        type_vocab_size=1,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(config).eval()  # without dropout
    edits_B1 = (torch.arange(BATCH) % 2 == 1)[:, None]

    def loss(_: int) -> Tensor:
        one_B = torch.randint(GRIDS, (BATCH,))
        route_BT = route_K2T[one_B, torch.randint(2, (BATCH,))]
        share_B1 = torch.rand(BATCH, 1).clamp(min=1 / STEPS)
        masked_BT = torch.rand(BATCH, STEPS) < share_B1
        seen_BT = perturbed(start_K[one_B, None], route_BT).where(edits_B1, route_BT) + first
        seen_BT = seen_BT.masked_fill(masked_BT & ~edits_B1, mask)
        weight_BT = (masked_BT / share_B1).where(~edits_B1, 1.0)
        logits_BTV = model(input_ids=torch.cat([grid_KC[one_B], seen_BT], 1)).logits[:, SIDE**2 :]
        loss_BT = torch.nn.functional.cross_entropy(logits_BTV.mT, route_BT + first, reduction="none")
        return (loss_BT * weight_BT).mean()

    averaged(model, loss, updates, rate=RATE, average=AVERAGE, warm=0.1).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
