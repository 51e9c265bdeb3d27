"""How the small models that the package ships are trained: AdamW at one cycle of rates, and an average of the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def averaged(
    model: Any, loss: Callable[[int], Tensor], steps: int, *, rate: float, average: float, warm: float, told: int = 200
) -> Any:
    """The moving average of the weights over so many steps down ``loss``, which is given a step's number and draws its batch. The rate
    rises for the part ``warm`` of them; every ``told`` steps the mean loss is printed."""
    print(sum(weight.numel() for weight in model.parameters()), "parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=warm)
    mean_of = torch.optim.swa_utils.get_ema_multi_avg_fn(average)
    found, mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=mean_of), 0.0
    for step in range(steps):
        one = loss(step)
        optimizer.zero_grad()
        one.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        found.update_parameters(model)
        mean = 0.99 * mean + 0.01 * one.item()
        if step % told == told - 1:
            print(step + 1, f"{mean:.4f}", flush=True)
    return found.module
