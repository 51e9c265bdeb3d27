"""A tuned model made plastic again before it is trained on: pulled back towards its base, with its most rigid units reset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gimbal.ops.seeds import stable_hash
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.loading import TINY
from gimbal.policies.token import CausalLM, Dtype, TokenPolicy, Tokens


@dataclass(frozen=True, kw_only=True)
class Rejuvenated(AbstractPolicySpec):
    """A model whose plasticity is restored after over-long supervised training, to start RL from (Rejuvenation, arXiv:2606.09932).

    ``model`` is the tuned model, ``base`` the one it was tuned from. Every tensor becomes base + a (tuned - base), with a = ``keep``,
    or less where the relative change a |tuned - base| / |base| would be above ``cap``. Then the share ``reset`` of each layer's
    feed-forward units goes back to base: those of the highest rigidity = drift / (variance + 1e-6), with drift the relative change
    of the unit's weights by tuning, and variance that of its activation over the tokens of ``probe``, in units of the layer's mean.
    Units whose mean |activation| is below ``dormant`` times the layer's count as the most rigid, and all are reset. ``noise`` is
    added to reset weights, relative to their root mean square. The optimiser starts without state anyway.

    - ``keep`` = 1, ``reset`` = 0: the tuned model. ``keep`` = 0: the base.
    - ``reset`` = 1: the base's feed-forward layers.
    - no ``probe``: by drift only.
    - tuned = base: refused, since nothing would change.

    Confidence: abstract-only; ours: everything except fusing weights with the base's and resetting rigid neurons.
    """

    family: ClassVar[Family] = CausalLM.family

    model: str = TINY
    base: str = TINY
    dtype: Dtype = "float32"
    keep: float = 0.7
    cap: float = float("inf")
    reset: float = 0.02
    dormant: float = 0.0
    noise: float = 0.0
    probe: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.keep <= 1 and 0 <= self.reset <= 1 and min(self.cap, self.dormant, self.noise) >= 0):
            raise ValueError(
                f"Rejuvenated keeps and resets shares (0 to 1), not {self.keep} and {self.reset}; cap, dormant and noise are 0 or above"
            )
        if self.dormant and not self.probe:
            raise ValueError("Rejuvenated finds dormant units by their activations: give it a probe of some texts")

    def load(self, seed: int = 0) -> TokenPolicy:
        tuned = CausalLM(model=self.model, dtype=self.dtype).load(seed)
        base = CausalLM(model=self.base, dtype=self.dtype).load(seed)
        units = list(feed_forwards(tuned.model))
        others = list(feed_forwards(base.model))
        seen = activities(tuned, units, self.probe)
        rigid = [
            self._rigid(unit, other, variance_U, size_U)
            for unit, other, (variance_U, size_U) in zip(units, others, seen, strict=True)
        ]
        self._moved(tuned.model, base.model)
        with torch.no_grad():
            self._fuse(tuned.model, base.model)
            for unit, other, rigid_U in zip(units, others, rigid, strict=True):
                generator = torch.Generator().manual_seed(stable_hash("rejuvenation", seed, unit.name))
                self._reset(unit, other, rigid_U, generator)
        return tuned

    def check_files(self) -> None:
        for model in (self.model, self.base):
            CausalLM(model=model).check_files()

    def at(self, directory: Path) -> CausalLM:
        """As it is: what was saved has been made plastic already."""
        return CausalLM(model=str(directory), dtype=self.dtype)

    def _moved(self, tuned: nn.Module, base: nn.Module) -> None:
        """Raises where there is no tuning to take back."""
        start = dict(base.named_parameters())
        for name, weight in tuned.named_parameters():
            if name not in start or start[name].shape != weight.shape:
                raise ValueError(
                    f"{self.model} has {name}, which {self.base} lacks in this shape; base must be the model it was tuned from"
                )
        if all(torch.equal(weight, start[name]) for name, weight in tuned.named_parameters()):
            raise ValueError(
                f"Rejuvenated is given the same weights as tuned model ({self.model}) and as base, so there is nothing to make "
                "plastic again: set policy.model to a model tuned from the base, such as that of a run of the recipe sft"
            )

    def _fuse(self, tuned: nn.Module, base: nn.Module) -> None:
        start = dict(base.named_parameters())
        for name, weight in tuned.named_parameters():
            drift = weight - start[name]
            change = float(drift.norm() / start[name].norm().clamp(min=1e-12))
            share = min(self.keep, self.cap / change) if change > 0 else self.keep
            weight.copy_(start[name] + share * drift if share < 1 else weight)

    def _rigid(self, unit: FeedForward, base: FeedForward, variance_U: Tensor, size_U: Tensor) -> Bool[Tensor, " U"]:
        """True where the unit is reset."""
        drift_U = (unit.weights() - base.weights()).norm(dim=1) / base.weights().norm(dim=1).clamp(min=1e-12)
        rigidity_U = drift_U / (variance_U / variance_U.mean().clamp(min=1e-12) + 1e-6)
        dormant_U = size_U < self.dormant * size_U.mean()
        order = torch.argsort(torch.where(dormant_U, torch.inf, rigidity_U), descending=True, stable=True)
        chosen_U = torch.zeros_like(dormant_U)
        chosen_U[order[: max(round(self.reset * len(order)), int(dormant_U.sum()))]] = True
        return chosen_U

    def _reset(self, unit: FeedForward, base: FeedForward, rigid_U: Tensor, generator: torch.Generator) -> None:
        for (weight, dim), (start, _) in zip(unit.tensors, base.tensors, strict=True):
            rows, fresh = weight.movedim(dim, 0), start.movedim(dim, 0)[rigid_U]
            jitter = torch.randn(fresh.shape, generator=generator).to(fresh) * fresh.square().mean().sqrt()
            rows[rigid_U] = fresh + self.noise * jitter if len(fresh) else fresh


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer: its tensors with the dimension that counts units, and the module that reads their activations."""

    name: str
    tensors: tuple[tuple[Tensor, int], ...]
    reader: nn.Module

    def weights(self) -> Float[Tensor, "U W"]:
        """All weights of each unit, in double precision."""
        return torch.cat([t.detach().movedim(dim, 0).flatten(1).double() for t, dim in self.tensors if t.ndim > 1], 1)


def feed_forwards(model: nn.Module) -> Iterator[FeedForward]:
    """Those of the Llama kind (gate, up, down), of GPT-2 (c_fc, c_proj) and of OPT (fc1, fc2)."""
    for name, module in model.named_modules():
        for names in (("gate_proj", "up_proj", "down_proj"), ("c_fc", "c_proj"), ("fc1", "fc2")):
            if not all(isinstance(getattr(module, part, None), nn.Module) for part in names):
                continue
            *into, out = (getattr(module, part) for part in names)
            turned = not isinstance(out, nn.Linear)  # GPT-2 keeps its weights the other way round
            tensors = [(part.weight, int(turned)) for part in into]
            tensors += [(part.bias, 0) for part in into if part.bias is not None]
            yield FeedForward(name, (*tensors, (out.weight, int(not turned))), out)


@torch.no_grad()
def activities(
    policy: TokenPolicy, layers: Sequence[FeedForward], texts: Sequence[str]
) -> list[tuple[Float[Tensor, " U"], Float[Tensor, " U"]]]:
    """Variance and mean size of every unit's activation over the tokens of the texts; 1 and 1 without texts."""
    seen: list[list[Tensor]] = [[] for _ in layers]

    def keep(own: list[Tensor]) -> Callable[..., None]:
        return lambda _, inputs: own.append(inputs[0].detach().flatten(0, -2))

    hooks = [layer.reader.register_forward_pre_hook(keep(own)) for layer, own in zip(layers, seen, strict=True)]
    try:
        for text in texts:
            ids = policy.tokenizer.encode(text, add_special_tokens=True)
            policy.model.base_model(input_ids=torch.tensor([ids], device=policy.model.device), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    if not texts:
        ones = [torch.ones(len(layer.weights()), dtype=torch.float64) for layer in layers]
        return list(zip(ones, ones, strict=True))
    whole = [torch.cat(own).double() for own in seen]
    return [(x_LU.var(0, correction=0), x_LU.abs().mean(0)) for x_LU in whole]


@torch.no_grad()
def diagnosis(policy: TokenPolicy, texts: Sequence[str], *, noise: float = 1e-2, draws: int = 4) -> dict[str, float]:
    """How plastic a model still is, over the tokens of some texts: what an over-trained one shows before reinforcement.

    ``entropy`` and ``confidence`` (the largest probability) of its distributions, ``loss`` of the texts, and ``sharpness``: by how much
    the loss rises on average when every tensor is moved by Gaussian noise of ``noise`` times its norm, and by its opposite.
    """
    rows = [policy.tokenizer.encode(text, add_special_tokens=True) for text in texts]
    if not rows or min(map(len, rows)) < 2:
        raise ValueError("a diagnosis reads texts of two tokens or more")
    tokens = Tokens.stack([Tokens.row(ids[:1], ids[1:]) for ids in rows])
    tokens = tokens.to(policy.model.device)
    there_NS = torch.arange(tokens.shape[1], device=policy.model.device) < (tokens.length_N - 1)[:, None]

    def loss() -> float:
        return -float(policy.evaluate(tokens).logprob_NS[there_NS].double().mean())

    whole = policy.evaluate(tokens, columns={"entropy_NS", "logprob_NSV"}).columns
    now, rises, kept = loss(), [], [weight.clone() for weight in policy.parameters()]
    generator = torch.Generator().manual_seed(stable_hash("diagnosis"))
    try:
        for _ in range(draws):
            pushes = [torch.randn(own.shape, generator=generator).to(own) for own in kept]
            for sign in (1, -1):
                for weight, own, push in zip(policy.parameters(), kept, pushes, strict=True):
                    weight.copy_(own + sign * noise * own.norm() / push.norm().clamp(min=1e-12) * push)
                rises.append(loss() - now)
    finally:
        for weight, own in zip(policy.parameters(), kept, strict=True):
            weight.copy_(own)
    return {
        "entropy": float(whole["entropy_NS"][there_NS].mean()),
        "confidence": float(whole["logprob_NSV"].amax(-1)[there_NS].exp().mean()),
        "loss": now,
        "sharpness": sum(rises) / len(rises),
    }
