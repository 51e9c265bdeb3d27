"""Drafts by a copy of the policy in 8 bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.drafting.base import AbstractDrafter, AbstractDrafts, Costs, Fronts, read

# Of the inputs of a layer; torch's kernel reads that many at once, and beyond its memory where fewer are left.
MULTIPLE = 32
ROWS = 1 << 10  # output channels that are rounded at once


@dataclass(frozen=True, kw_only=True)
class SelfSpeculation(AbstractDrafter):
    """Drafts with the policy itself, its matrices rounded to 8 bits at every load and read by torch's int8 CPU kernel.

    w ~ s round(w / s), s = max|w| / 127 for each output channel. The copy shares everything else with the engine's model: embeddings,
    norms, and the cache, whose keys and values are the model's own; a wide pass overwrites those of drafted tokens. So there is no
    prefill or catch-up, and new weights cost one rounding. The copy uses the random number that will sample the position: a draft is
    wrong only where u falls between the two cumulative sums.

    - a copy that equals the model: everything is accepted.
    - a model as small as its overhead: the copy costs as much as the model, and nothing is drafted.

    CPU only. Takes one byte of memory per weight.

    After EfficientRollout (arXiv:2606.18967), which rounds to 4 bits.

    Confidence: verified
    """

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.engine.device.startswith("cuda"):
            yield Refusal(
                f"engine.drafter=SelfSpeculation() computes in int8 on processors, and engine.device is {whole.run.engine.device}: "
                "engine.drafter='PromptLookup()'"
            )

    def start(self, model: Any) -> tuple[AbstractDrafts, Costs]:
        device = next(model.parameters()).device
        if device.type != "cpu":
            raise ValueError(
                f"engine.drafter=SelfSpeculation() computes in int8 on processors, and the sampler's model is on {device}: "
                "engine.drafter='PromptLookup()'"
            )
        drafts = RoundedCopy(model)
        saved = sum(m.kept.numel() * (m.weight.element_size() - 1) for m in drafts.matrices)
        return drafts, self.costs(model, draft=read(model) - saved)


class Matrix(nn.Module):
    """A rounded linear layer. ``weight`` is the layer's own, the source of each rounding."""

    def __init__(self, layer: Any, transposed: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.transposed = layer.weight, layer.bias, transposed
        shape = layer.weight.shape[::-1] if transposed else layer.weight.shape
        self.kept: Tensor = torch.zeros(shape, dtype=torch.int8)
        self.scale_C = torch.zeros(shape[0], dtype=torch.bfloat16)

    @torch.no_grad()
    def load(self) -> None:
        weight = self.weight.T if self.transposed else self.weight
        for w, kept, scale_C in zip(weight.split(ROWS), self.kept.split(ROWS), self.scale_C.split(ROWS), strict=True):
            scale_C.copy_((w.float().abs().amax(1) / 127).clamp_(min=torch.finfo(torch.float32).tiny))
            kept.copy_((w.float() / scale_C.float()[:, None]).round_().clamp_(-127, 127))

    def forward(self, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        flat = x.reshape(-1, x.shape[-1]).to(torch.bfloat16).contiguous()
        y = torch._weight_int8pack_mm(flat, self.kept, self.scale_C).to(x.dtype)
        return (y if self.bias is None else y + self.bias).reshape(*x.shape[:-1], -1)


class RoundedCopy(AbstractDrafts):
    """The live one."""

    def __init__(self, model: Any) -> None:
        from transformers.pytorch_utils import Conv1D

        # Every tensor is the engine's own: what is loaded there is loaded here.
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.module: Any = copy.deepcopy(model, shared)
        self.matrices: list[Matrix] = []
        for name, layer in list(self.module.named_modules()):
            transposed = isinstance(layer, Conv1D)
            if not (transposed or isinstance(layer, nn.Linear)) or ".lora_" in name:
                continue
            if layer.weight.shape[0 if transposed else 1] % MULTIPLE:
                continue
            self.matrices.append(Matrix(layer, transposed))
            path, _, own = name.rpartition(".")
            setattr(self.module.get_submodule(path), own, self.matrices[-1])

    def load(self) -> None:
        for matrix in self.matrices:
            matrix.load()

    def propose(self, fronts: Fronts, most: Sequence[int]) -> list[list[int]]:
        live = torch.arange(len(fronts.known_B), device=fronts.known_B.device)
        id_B: Int[Tensor, " B"] = fronts.ids_BL[live, fronts.known_B - 1]
        drafted = []
        for j in range(max(most)):
            id_B = fronts.guess(self.module, id_B, j)
            drafted.append(id_B.tolist())
        return [list(row[:count]) for row, count in zip(zip(*drafted, strict=True), most, strict=True)]
