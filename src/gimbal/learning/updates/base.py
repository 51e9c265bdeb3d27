"""Updates: the models that learn, and their losses.

An update is a frozen dataclass. It declares its models (``models``) and yields losses (``losses``), each with the names of the models
that it moves. The learner does the rest: it makes the models and their optimisers, cuts minibatches, adds gradients up over micro-
batches and processes, refuses what is not finite, clips, moves, saves. So an actor-critic with targets and a denoising loss are one
file each, as the policy gradient is.

    for each minibatch                  survey(models, minibatch)       what is needed from all of it before it is split
        for each loss in losses(...)    backward, clip, move of         the next one is computed from the moved models
        then                            moved(models, metrics)
    at the end of the step              stepped(models, batch)
"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import ops
from gimbal.composition import AbstractPart, AbstractRemembering
from gimbal.controllers.base import AbstractController
from gimbal.controllers.stability import Stability
from gimbal.learning.kinds import OtherKind
from gimbal.learning.optimization import Optimization
from gimbal.learning.optimizers import AbstractOptimizer
from gimbal.learning.proximal.base import Forward
from gimbal.learning.ranks import AbstractRanks, in_micro_batches
from gimbal.learning.separate import by_role
from gimbal.nested import walk
from gimbal.ops.weights import buffers_of, weights_of
from gimbal.policies.base import AbstractPolicy, Evaluation
from gimbal.records import Group, TrainBatch
from gimbal.rewards.base import AbstractReward

Metrics = dict[str, float]


class NotFinite(ValueError):
    """A loss or gradient was NaN or infinite. The update was not applied (earlier ones of the same step may have been)."""


class NotFiniteAdvantage(NotFinite):
    """The same, because of advantages: no learning rate helps."""


BROKEN = "not_finite/"  # before the name of a part, in the metrics of a step in which its numbers were not finite
POLICY = "policy"  # the model that samplers draw by; every update has it


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model of an update: where it comes from, and what moves it.

    ``load`` makes it from the run's seed. ``first``: it is the run's ``reference``, by default its initial policy, or begins as it if
    losses move it. ``follows`` names the model it trails as a copy: after each move of that one, w <- w + ``rate`` (w_followed - w).
    ``optimizer`` is None where no loss moves it.
    """

    load: Callable[[int], nn.Module] | None = None
    first: bool = False
    follows: str = ""
    rate: float = 0.0
    optimizer: AbstractOptimizer | None = None


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss that one move descends, and the models it moves; no other model gets its gradient.

    ``value`` and ``metrics`` are this micro-batch's parts of sums over the whole minibatch: their denominators come from ``survey``.
    The metrics show the gradient norm of the model named first.
    """

    of: tuple[str, ...]
    value: Float[Tensor, ""]
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Stateful(Protocol):
    """A part's state between steps, as plain numbers, strings, tensors and mappings of them."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Remembered:
    """The state of a part that is itself a frozen record: the live half of an ``AbstractRemembering``."""

    def __init__(self, part: AbstractRemembering) -> None:
        self.kind, self.state = type(part).__name__, part.init()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.keys() != self.state.keys():
            raise ValueError(
                f"the checkpoint's state of {self.kind} is of {', '.join(state) or 'nothing'}, and this one's of "
                f"{', '.join(self.state)}: it is from another recipe or an earlier version of gimbal; start a new run from its "
                "weights, policy.model=.../model"
            )
        self.state = dict(state)


class Unmeasured(KeyError):
    """The step has no metric of this name."""


class Signals(dict[str, float]):
    """A step's metrics as rules read them: a missing metric is distinguished from the rules' own KeyErrors."""

    def __missing__(self, name: str) -> float:
        raise Unmeasured(name)


def memories(update: AbstractUpdate) -> dict[str, Remembered]:
    """The state of each part of an update that remembers, by the part's path."""
    return {path: Remembered(part) for path, part in walk(update) if isinstance(part, AbstractRemembering)}


class Models:
    """The live half of an update: its models by name, their optimisers, the state of its parts, and how often the weights moved."""

    def __init__(
        self,
        specs: Mapping[str, ModelSpec],
        modules: Mapping[str, nn.Module],
        *,
        forward: Forward,
        ranks: AbstractRanks,
        seed: int,
        owners: Mapping[str, str],
    ) -> None:
        self.specs, self.modules, self.owners = specs, dict(modules), owners
        self.forward, self.ranks, self.seed = forward, ranks, seed
        self.optimizers = {
            name: spec.optimizer.over(modules[name]) for name, spec in specs.items() if spec.optimizer is not None
        }
        self.parts: dict[str, Any] = {}  # Stateful, by name
        self.renewed: set[str] = set()  # models that began as the first policy and are it no longer
        self.version = 0  # learner steps taken
        self.updates = 0  # moves of the weights by this object
        self.seconds: dict[str, float] = defaultdict(float)  # of this process since the last step, by what took them

    def __getitem__(self, name: str) -> Any:
        return self.modules[name]

    def get(self, name: str) -> Any | None:
        return self.modules.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self.modules

    @property
    def policy(self) -> AbstractPolicy:
        return self.modules[POLICY]  # pyrefly: ignore[bad-return]; the learner puts a policy there

    @property
    def device(self) -> torch.device:
        return next(self.policy.parameters()).device

    def evaluated(
        self, batch: TrainBatch, columns: Collection[str] = (), policy: AbstractPolicy | None = None
    ) -> dict[str, Tensor]:
        """``logprob_NS`` and the columns asked for, without gradient, of the models being trained or another policy."""
        if policy is not None:
            return self.in_micro_batches(batch, self.forward.columns_of(policy, columns))

        def columns_of(micro: TrainBatch) -> Mapping[str, Tensor]:
            found = self.evaluate(micro, columns)
            return {"logprob_NS": found.logprob_NS, **found.columns}

        return self.in_micro_batches(batch, columns_of)

    def evaluate(self, micro: TrainBatch, columns: Collection[str] = (), *, checkpointing: bool = False) -> Evaluation:
        """With gradient, of one micro-batch: each row by the model of its role."""

        def evaluate(name: str, rows: TrainBatch) -> Evaluation:
            assert rows.decisions is not None
            model = self.modules[name or POLICY]
            assert isinstance(model, AbstractPolicy), name
            own = [column for column in columns if column in model.provides]
            temperature = self.forward.temperature
            return model.evaluate(rows.decisions, temperature=temperature, columns=own, checkpointing=checkpointing)

        return by_role(micro, self.owners, evaluate)

    def in_micro_batches(
        self, batch: TrainBatch, columns_of: Callable[[TrainBatch], Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        return in_micro_batches(self.ranks, self.policy, batch, self.forward.tokens, columns_of)

    def random(self, *names: Any) -> np.random.Generator:
        """A generator for this step and these names; the same after a resume."""
        return ops.philox(self.seed, *names, self.version)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Time spent within it counts as ``time/WHAT`` of the step."""
        start = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - start

    def trained(self, names: Iterable[str]) -> list[Tensor]:
        """The weights of these models that training moves."""
        return [weight for name in names for weight in weights_of(self.modules[name]) if weight.requires_grad]

    @torch.no_grad()
    def follow(self, moved: Collection[str]) -> None:
        """Move each model that follows one of these a step towards it."""
        for name, spec in self.specs.items():
            if spec.follows in moved and spec.rate:
                own, other = self.modules[name], self.modules[spec.follows]
                torch._foreach_lerp_(weights_of(own), weights_of(other), spec.rate)
                for statistic, newer in zip(buffers_of(own), buffers_of(other), strict=True):
                    statistic.copy_(newer)

    def renew(self, name: str) -> None:
        """Copy the present policy's weights into it."""
        self.modules[name].load_state_dict(self.policy.state_dict())
        self.renewed.add(name)

    def begin(self, others: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Start these models from another run's weights."""
        for name, weights in others.items():
            own = {n: tuple(x.shape) for n, x in self.modules[name].state_dict().items()}
            there = {n: tuple(x.shape) for n, x in weights.items()}
            if own != there:
                first = next(n for n in (*own, *there) if own.get(n) != there.get(n))
                sizes = f"{first} is {there.get(first, 'missing')} there and {own.get(first, 'missing')} here"
                raise ValueError(
                    f"begin_from: the other run's {name} has other sizes than this run's ({sizes}): set tasks.environment, and critic "
                    "(members, hidden, layer_norm, blocks), as that run's recipe.yaml has them"
                )
            self.modules[name].load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the policy, which is saved separately, and models that are loaded again from where they came from."""
        made = {name for name, spec in self.specs.items() if spec.first and spec.optimizer is None} - self.renewed
        kept = self.specs.keys() - made - {POLICY}
        return {
            "version": self.version,
            "models": {name: _cloned(self.modules[name].state_dict()) for name in sorted(kept)},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.version = state["version"]
        for name, weights in state["models"].items():
            self.modules[name].load_state_dict(weights)
        self.renewed = {name for name in state["models"] if self.specs[name].first}
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        for name, part in self.parts.items():
            if name not in state["parts"]:
                raise ValueError(
                    f"the checkpoint lacks the state of {name}: it is from another recipe or an earlier version of gimbal; "
                    "start a new run from its weights, policy.model=.../model"
                )
            part.load_state_dict(state["parts"][name])


@dataclass(frozen=True, kw_only=True)
class AbstractUpdate(AbstractPart, ABC):
    """What learns, and from which losses. ``controllers`` maps dotted paths into this record to the rules that move numbers
    there; ``stability`` is the closed loop that sets the learning rate and scales back steps that went too far.
    """

    off_policy: ClassVar[bool] = False  # whether decisions of any age teach it, whatever policy took them

    optimization: Optimization = Optimization()
    controllers: Mapping[str, AbstractController] = field(default_factory=dict)
    stability: Stability | None = None

    @property
    def begins_from(self) -> str:
        """The directory of the run whose models, besides the policy, it begins with; "": none."""
        return ""

    @property
    def owners(self) -> Mapping[str, str]:
        """The model of each role with weights of its own; all other rows are the policy's."""
        return {}

    @property
    def kinds(self) -> Mapping[str, OtherKind]:
        """Those of these models that are of another kind than the policy, by name."""
        return {}

    @abstractmethod
    def models(self) -> Mapping[str, ModelSpec]:
        """Every model by its name, ``policy`` among them. A learning rate that a controller moves is read again before each move."""

    @abstractmethod
    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        """The losses of one micro-batch, in order. Each is computed after the one before has moved its models."""

    def of_run(self, rewards: tuple[AbstractReward, ...]) -> AbstractUpdate:
        """The update in a run with these rewards, for one that needs more of them than their scores."""
        return self

    def init(self, models: Models) -> dict[str, Stateful]:
        """What its parts remember, by name. Made once, kept in ``models.parts``, saved and resumed with the run."""
        return {}

    def begun(self, models: Models) -> None:
        """Called before the first step of a new run, not of a resumed one: what it changes in the policy is saved with the policy."""
        return None

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """The batch with the columns that no update on it may change, and their metrics."""
        return batch, {}

    def moves(self, batch: TrainBatch) -> list[int] | None:
        """How many rows each move of the weights takes, in order. None: as many moves as ``optimization`` says, on shuffled rows."""
        return None

    def stages(self, minibatch: TrainBatch) -> Iterable[Mapping[str, Tensor]]:
        """The passes over one minibatch, each given by the facts that distinguish it; by default one pass."""
        return ({},)

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """The minibatch with what must be known of the whole of it: here ``weight``, the same of each counted decision, 1 in all."""
        return minibatch.with_columns({"weight": ops.TokenMean()(minibatch.mask_NS)}), {}

    def whole_groups(self) -> bool:
        """Whether a loss compares rows of a group, so that no micro-batch may split one."""
        return False

    def fewest(self) -> int:
        """The fewest episodes of a group that it can compare. A group that lost samples and has fewer is dropped."""
        return 1

    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        """|y - Q| of each row of one decision; only for an update whose ``effects`` have TELLS_ERRORS."""
        raise AssertionError(f"{type(self).__name__} tells no errors")

    def step_factor(self, metrics: Mapping[str, float]) -> float:
        """What the learning rates of one move are multiplied by, given the metrics of its minibatch."""
        return 1.0

    def moved(self, models: Models, metrics: Mapping[str, float]) -> None:
        """Called after every move."""
        return None

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        """Called at the end of every step, when ``models.version`` is the new one; returns further metrics of it."""
        return {}

    def arrived(self, models: Models, group: Group) -> None:
        """Called with a group when it starts waiting for its batch."""
        return None

    def before_update(self, models: Models, held: Callable[[], Sequence[Group]]) -> None:
        """Called before every step; ``held`` gives everything sampled for later ones, including unfinished rollouts."""
        return None

    def close(self, models: Models) -> None:
        """Called once, when nothing more will be asked of it."""
        return None


def assembled(
    update: AbstractUpdate,
    given: Mapping[str, nn.Module | None],
    *,
    first: Callable[[], nn.Module] | None,
    temperature: float,
    ranks: AbstractRanks,
    seed: int,
) -> Models:
    """The live models of an update: those that are given, and the others as their specs say. ``first`` makes the first policy."""
    specs = update.models()
    modules = {name: module for name, module in given.items() if module is not None}
    if unknown := sorted(modules.keys() - specs.keys()):
        raise ValueError(
            f"{type(update).__name__} learns with {', '.join(specs)}, but also received {unknown[0]!r}: leave it out, or set the "
            "part that reads it"
        )
    device = next(modules[POLICY].parameters()).device
    for name, spec in specs.items():
        if name in modules or spec.follows:
            continue
        if spec.load is not None:
            modules[name] = spec.load(seed).to(device)
        elif spec.first and first is not None:
            modules[name] = first()
        else:
            raise ValueError(
                f"{type(update).__name__} has a model {name!r} that it cannot make itself: give it to the learner, "
                f"Learner(..., {name}=...)"
            )
    for name, spec in specs.items():
        if name not in modules:
            modules[name] = copy.deepcopy(modules[spec.follows]).requires_grad_(False)
    forward = Forward(temperature=temperature, tokens=update.optimization.microbatch_tokens)
    models = Models(specs, modules, forward=forward, ranks=ranks, seed=seed, owners=update.owners)
    models.parts = dict(update.init(models))
    return models


def _cloned(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy: training goes on while the checkpoint is written."""
    return {name: x.clone() if isinstance(x, Tensor) else x for name, x in state.items()}
