"""Optimisers by name: what moves the weights of a model along its gradient, and in which precision it remembers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from gimbal.policies.lora import quiet_bitsandbytes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PIECE = 1 << 24  # weights whose moments are held in float32 at once
MOST_BETA2 = 0.99  # with moments in bfloat16: beyond, a second moment would change by less than its neighbours are apart, and stay


@dataclass(frozen=True, kw_only=True)
class AbstractOptimizer(ABC):
    """The optimiser of one model; its gradient is clipped to ``max_grad_norm`` separately."""

    learning_rate: float
    max_grad_norm: float = 1.0

    @abstractmethod
    def over(self, module: nn.Module) -> torch.optim.Optimizer:
        """The live optimiser of the weights that training moves."""


@dataclass(frozen=True, kw_only=True)
class AdamW(AbstractOptimizer):
    """AdamW (arXiv:1711.05101). ``dtype`` is that of its two moments: "" is the weights' own; "bfloat16" halves those of float32
    weights (as DeepSeek-V3 does, arXiv:2412.19437), each rounded after every step.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    dtype: str = ""

    def over(self, module: nn.Module) -> torch.optim.Optimizer:
        own = {"lr": self.learning_rate, "betas": (self.beta1, self.beta2), "eps": self.epsilon}
        if self.dtype:
            return Rounded(trained(module), {**own, "weight_decay": self.weight_decay}, DTYPES[self.dtype])
        weights = trained(module)
        kinds = {(type(weight), weight.dtype, weight.device) for weight in weights}
        live = Alike if len(kinds) == 1 and type(weights[0]) is nn.Parameter else partial(torch.optim.AdamW, fused=True)
        return live(weights, **own, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class AdamW8bit(AbstractOptimizer):
    """AdamW with moments of 8 bits in blocks of 256 (arXiv:2110.02861), by bitsandbytes (extra ``8bit``), on GPUs and CPUs. Tensors of
    fewer than 4,096 numbers keep float32 moments.
    """

    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def over(self, module: nn.Module) -> torch.optim.Optimizer:
        quiet_bitsandbytes()
        try:
            import bitsandbytes
        except ImportError as error:
            raise ValueError(
                "optimizer=adamw_8bit needs bitsandbytes: pip install -e '.[8bit]' in the clone; or "
                "optimizer=adamw optimizer_dtype=bfloat16"
            ) from error
        weights = trained(module)
        if any(_here(weight) is not weight for weight in weights):
            raise ValueError(
                "optimizer=adamw_8bit does not support a learner in several processes: set optimizer=adamw "
                "optimizer_dtype=bfloat16, or start it without torchrun"
            )
        return bitsandbytes.optim.AdamW8bit(
            weights,
            lr=self.learning_rate,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class SGD(AbstractOptimizer):
    """w <- w - rate m,  m <- momentum m + g.  Without momentum it has no state."""

    momentum: float = 0.9
    weight_decay: float = 0.0

    def over(self, module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            trained(module),
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class Muon(AbstractOptimizer):
    """Muon for the matrices in a model's blocks, and ``rest`` for everything else: embeddings, output layer, norms, biases.

    A matrix's momentum is orthogonalised by five Newton-Schulz iterations in bfloat16 and scaled to the size of AdamW's updates, 0.2
    sqrt(max(rows, columns)) (arXiv:2502.16982), so one learning rate fits both. Uses torch.optim.Muon with momentum 0.95.
    """

    rest: AdamW
    weight_decay: float = 0.0

    def over(self, module: nn.Module) -> torch.optim.Optimizer:
        matrices = {id(w): w for stack in stacks(module) for w in trained(stack) if w.ndim == 2}
        if not matrices:
            raise ValueError(
                f"optimizer=muon is for the matrices of a stack of blocks, but {type(module).__name__} trains none: optimizer=adamw"
            )
        muon = torch.optim.Muon(
            list(matrices.values()),
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
        others = nn.ParameterList(w for w in trained(module) if id(w) not in matrices)
        return Together(muon, self.rest.over(others)) if len(others) else muon


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def stacks(module: nn.Module) -> list[nn.Module]:
    """The outermost lists of blocks."""
    if isinstance(module, nn.ModuleList):
        return [module]
    return [stack for child in module.children() for stack in stacks(child)]


class Alike(torch.optim.Optimizer):
    """torch's fused AdamW for weights of one type on one device, with torch's own state.

    torch sorts weights by type and device at each step, which takes five times as long as the step of a small network. The counts
    of steps lie side by side in memory, since to add 1 to each by itself takes as long as the step.
    """

    def __init__(
        self, weights: list[nn.Parameter], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        # "fused" tells torch to put counts of steps that are loaded beside their weights.
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "fused": True}
        super().__init__(weights, own)
        self.counts_W = torch.zeros(0)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyrefly: ignore[bad-override]
        assert closure is None
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            states = [self.state[weight] or self._begun(weight) for weight in weights]
            counts = self._counted(states)
            beta1, beta2 = group["betas"]
            torch._fused_adamw_(
                weights,
                [weight.grad for weight in weights if weight.grad is not None],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                counts,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    # What torch would wrap around a step, for its profiler and for hooks, takes as long as the step.
    step.hooked = True  # pyrefly: ignore

    def _begun(self, weight: nn.Parameter) -> dict[str, Tensor]:
        moments = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
        self.state[weight] = {"step": torch.zeros((), dtype=torch.float32, device=weight.device), **moments}
        return self.state[weight]

    def _counted(self, states: list[dict[str, Tensor]]) -> list[Tensor]:
        """Their counts, each 1 more. They are laid side by side anew where other weights move than last, and after a load."""
        counts = [state["step"] for state in states]
        if len(counts) != len(self.counts_W) or any(count._base is not self.counts_W for count in counts):
            self.counts_W = torch.stack(counts)
            counts = [*self.counts_W.unbind()]
            for state, count in zip(states, counts, strict=True):
                state["step"] = count
        self.counts_W += 1
        return counts


class Together(torch.optim.Optimizer):
    """Several optimisers, each with its own weights, as one: their joint state is saved and resumed like any other."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share()
        self.register_load_state_dict_post_hook(lambda _: self._share())

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.state = self.state
            part.param_groups = [next(groups) for _ in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyrefly: ignore[bad-override]
        assert closure is None
        for part in self.parts:
            part.step()


class Rounded(torch.optim.Optimizer):
    """AdamW with moments in their own type. Each step is torch's, in float32, on slices of the weights."""

    def __init__(self, weights: list[nn.Parameter], defaults: Mapping[str, Any], dtype: torch.dtype) -> None:
        super().__init__(weights, dict(defaults))
        self.dtype = dtype
        self.register_load_state_dict_post_hook(lambda _: self._cast())

    def _cast(self) -> None:
        """Loading gives moments the type of their weights."""
        for state in self.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = state[name].to(self.dtype)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyrefly: ignore[bad-override]
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)

    def _move(self, weight: nn.Parameter, group: Mapping[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            # As torch's AdamW counts, for which a saved state is then no other.
            state["step"] = torch.zeros((), dtype=torch.float32, device=_here(weight).device)
            state["exp_avg"] = torch.zeros_like(weight, dtype=self.dtype)
            state["exp_avg_sq"] = torch.zeros_like(weight, dtype=self.dtype)
        assert weight.grad is not None
        tensors = [_here(x) for x in (weight, weight.grad, state["exp_avg"], state["exp_avg_sq"])]
        if all(x.is_contiguous() for x in tensors):
            parts = [x.view(-1).split(PIECE) for x in tensors]
        else:
            parts = [(x,) for x in tensors]
        for pieces in zip(*parts, strict=True):
            exact = [x.float() for x in pieces]  # what is float32 already is itself, and moved where it is
            w, g, m, s = ([x] for x in exact)
            adamw(
                w,
                g,
                m,
                s,
                [],
                [state["step"].clone()],
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for own, moved in zip(pieces, exact, strict=True):
                if own is not moved:
                    own.copy_(moved)
        state["step"] += 1


def _here(tensor: Tensor) -> Tensor:
    """This process's part of it."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return tensor  # nothing is sharded, and the import below takes as long as that of torch itself
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
