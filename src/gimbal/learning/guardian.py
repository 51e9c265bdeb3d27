"""Which states and actions recorded data hold: a set around them, by which a learned world is not asked about others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.config.own import told
from gimbal.config.parts import label, resolve
from gimbal.environments.gym import Gymnasium, opened
from gimbal.environments.minari import Minari
from gimbal.policies.control import Steps

CART, LIMIT = (f"gimbal.environments.bounded_cart:{name}" for name in ("BoundedCart", "out_of_bounds"))
MOST, PART = 2_000, 4_096  # products, whose matrix is inverted; rows whose products are held at a time


def broken(rule: Callable[..., Any], steps: Steps, name: str) -> Bool[Tensor, "N S"]:
    """Which steps break the limit of this rule, a user's function of next observations that ``name`` names."""
    next_KO = steps.next_NSO.flatten(0, 1)
    found = rule(next_KO.clone())
    if not isinstance(found, Tensor) or found.shape != next_KO.shape[:1] or found.dtype != torch.bool:
        kind = f"{found.dtype} of shape {list(found.shape)}" if isinstance(found, Tensor) else told(found)
        raise ValueError(
            f"{name} returned {kind} for {len(next_KO)} observations; it must return a bool tensor of shape [{len(next_KO)}], one for "
            "each"
        )
    return found.view(steps.shape) & steps.real_NS


def misplaced(unsafe: str, name: str, whole: Composition) -> Iterator[Verdict]:
    """Where the limit is that of gimbal's own cart, and the run is about something else, of which it would read the first number."""
    tasks = whole.run.tasks
    if unsafe != LIMIT or not isinstance(tasks, Gymnasium | Minari) or _of_cart(tasks.source):
        return
    yield Refusal(
        f"{name} is the limit of gimbal's own cart, and {tasks.source or 'what is recorded'} is another environment: set "
        f"{name}=file.py:function of its next observations"
    )


def _of_cart(source: str) -> bool:
    if not source:
        return False
    try:
        env = opened(source)
    except ValueError:  # it is not to be had here
        return False
    return any(f"{kind.__module__}:{kind.__qualname__}" == CART for kind in type(env.unwrapped).__mro__)


@dataclass(frozen=True, kw_only=True)
class Guardian:
    """Prices on imagined steps that leave the recorded data, and on those that break a limit (OGSRL, arXiv:2505.16242).

    Of x = (o, a), each number less its mean and in units of its spread over the data, v(x) are all products of at most ``degree`` of
    them, 1 among these, and M = E[v v^T] + ``ridge`` over the data. Then

        q(x) = v(x)^T M^-1 v(x) / kappa,   kappa the ``coverage``-quantile of v^T M^-1 v over the data,

    so that the set q <= 1 holds that share of them. ``unsafe`` is a function of next observations [K, O] (file.py:function), True where
    the limit is broken. An imagined step earns

        r <- r - price [q(o, a) > 1] - penalty [unsafe(o')],

    and a recorded one r - penalty [unsafe(o')]. Lagrangian moves ``price`` by ``guard/outside`` and ``penalty`` by ``guard/unsafe``,
    the shares of imagined steps.

    - ``price`` = ``penalty`` = 0: rewards as they are.
    - ``degree`` = 1: an ellipsoid, by the Mahalanobis distance.
    - ``coverage`` = 1: none of the data is outside.

    Ours: ``degree`` 2, ``coverage`` .95, and q itself: a Christoffel function for the paper's sum of squares of smallest volume.

    Confidence: partial; from the card of the paper.
    """

    degree: int = 2
    coverage: float = 0.95
    price: float = 1.0
    ridge: float = 1e-4
    unsafe: str | Callable[..., Any] = ""
    penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.degree < 1 or not 0 < self.coverage <= 1 or not 0 < self.ridge < math.inf:
            raise ValueError(
                f"Guardian has degree {self.degree} (at least 1), coverage {self.coverage}, a share of the data above 0, and ridge "
                f"{self.ridge}, which is above 0"
            )
        for name in ("price", "penalty"):
            if not 0 <= (value := vars(self)[name]) < math.inf:
                raise ValueError(f"Guardian.{name} is {value}; it is what a step costs, 0 or above, and finite")
        if not isinstance(self.unsafe, str):
            object.__setattr__(self, "unsafe", label(self.unsafe))
        if self.unsafe and ":" not in str(self.unsafe):
            raise ValueError(
                f"Guardian.unsafe is {self.unsafe!r}; it is a function of next observations (file.py:function), or empty: no limit"
            )


class Supported:
    """The set of one run. Until data are shown it holds everything."""

    def __init__(self, spec: Guardian) -> None:
        self.spec = spec
        self.rule = resolve(str(spec.unsafe)) if spec.unsafe else None
        self.fitted: dict[str, Tensor] = {}

    def fit(self, x_KX: Float[Tensor, "K X"]) -> None:
        """By all data at once."""
        products = math.comb(x_KX.shape[1] + self.spec.degree, self.spec.degree)
        if self.spec.degree > 1 and products > MOST:
            raise ValueError(
                f"guard.degree {self.spec.degree} makes {products:,} products of {x_KX.shape[1]} numbers (observation and action), "
                f"of which at most {MOST:,} are taken: set a smaller guard.degree; 1 makes {x_KX.shape[1] + 1:,}"
            )
        x_KX = x_KX.double()
        # A number that never changes is in units of 1.
        mean_X, spread_X = x_KX.mean(0), x_KX.std(0, correction=0)
        self.fitted = {"mean": mean_X, "spread": torch.where(spread_X > 0, spread_X, 1)}
        moment_VV = torch.zeros(products, products).to(x_KX)
        for v_KV in self._products(x_KX):
            moment_VV += v_KV.T @ v_KV / len(x_KX)
        moment_VV += self.spec.ridge * torch.eye(products).to(x_KX)
        self.fitted["inverse"] = torch.linalg.inv(moment_VV)
        self.fitted["kappa"] = torch.quantile(self._distances(x_KX), self.spec.coverage, interpolation="higher")

    def __call__(self, x_KX: Float[Tensor, "K X"]) -> Float[Tensor, " K"]:
        """q of each."""
        if not self.fitted:
            return x_KX.new_zeros(len(x_KX))
        self.fitted = {name: x.to(x_KX.device) for name, x in self.fitted.items()}  # a checkpoint's are in main memory
        found_K = self._distances(x_KX.double()) / self.fitted["kappa"]
        return found_K.to(x_KX.dtype)

    def outside(self, steps: Steps) -> Bool[Tensor, "N S"]:
        """Which steps are not of the set."""
        seen_and_done_NSX = torch.cat([steps.observation_NSO, steps.action_NSA], -1)
        return (self(seen_and_done_NSX.flatten(0, 1)) > 1).view(steps.shape) & steps.real_NS

    def unsafe(self, steps: Steps) -> Bool[Tensor, "N S"]:
        """Which steps break the limit."""
        if self.rule is None:
            return torch.zeros_like(steps.real_NS)
        return broken(self.rule, steps, "guard.unsafe")

    def _distances(self, x_KX: Float[Tensor, "K X"]) -> Float[Tensor, " K"]:
        return torch.cat([((v_KV @ self.fitted["inverse"]) * v_KV).sum(-1) for v_KV in self._products(x_KX)])

    def _products(self, x_KX: Float[Tensor, "K X"]) -> Iterator[Float[Tensor, "K V"]]:
        """Of some rows after others."""
        z_KX = (x_KX - self.fitted["mean"]) / self.fitted["spread"]
        one_K1 = torch.ones_like(z_KX[:, :1])
        places = range(z_KX.shape[1] + 1)  # the last is 1, so that products of fewer are there too
        z_KX = torch.cat([z_KX, one_K1], -1)
        chosen = list(combinations_with_replacement(places, self.spec.degree))
        for z_PX in z_KX.split(PART):
            yield torch.stack([z_PX[:, list(one)].prod(-1) for one in chosen], -1)

    def state_dict(self) -> dict[str, Any]:
        return {name: x.clone() for name, x in self.fitted.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.fitted = dict(state)
