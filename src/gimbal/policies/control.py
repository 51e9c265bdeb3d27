"""Control: what the policies over vector observations share, and the record of what they saw and did."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec, Evaluation, Family
from gimbal.policies.normalizer import Normalizer
from gimbal.records import AbstractDecisions, AbstractSampling

MEAN = "mean_NSD"  # column: the mean of each number of an action, as of a denoising step
EACH = "logprob_NSA"  # column: the log-probability of each number of an action, where these are independent
CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class Steps(AbstractDecisions):
    """Steps in an environment: what was observed before each action, the action, and what was observed after the last.

    An action is a vector of reals, or one integer (A = 1) for discrete actions. Rows are padded on the right.
    """

    observation_NSO: Float[Tensor, "N S O"]
    action_NSA: Shaped[Tensor, "N S A"]
    final_NO: Float[Tensor, "N O"]
    length_N: Int[Tensor, " N"]
    terminated_N: Bool[Tensor, " N"]  # the environment ended it: nothing is to be had after the last action

    @property
    def shape(self) -> tuple[int, int]:
        n, s, _ = self.observation_NSO.shape
        return n, s

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        return self.length_N

    @property
    def extent(self) -> tuple[int, int]:
        return self.shape

    @property
    def label_NS(self) -> Int[Tensor, "N S"]:
        seen_and_done = torch.cat([self.observation_NSO, self.action_NSA.to(self.observation_NSO.dtype)], dim=-1)
        labels = torch.unique(seen_and_done.flatten(0, 1), dim=0, return_inverse=True)[1]
        return labels.reshape(self.shape)

    @cached_property
    def even(self) -> bool:
        """Whether all rows are of one length, and nothing is padding."""
        return bool((self.length_N == self.shape[1]).all())

    @property
    def real_NS(self) -> Bool[Tensor, "N S"]:
        """False on padding."""
        return torch.arange(self.shape[1], device=self.length_N.device) < self.length_N[:, None]

    @property
    def next_NSO(self) -> Float[Tensor, "N S O"]:
        """What was observed after each action."""
        if self.shape[1] == 1:
            return self.final_NO[:, None]
        shifted_NSO = torch.cat([self.observation_NSO[:, 1:], self.final_NO[:, None]], dim=1)
        return torch.where(self._last_NS[..., None], self.final_NO[:, None], shifted_NSO)

    @property
    def ended_NS(self) -> Bool[Tensor, "N S"]:
        """Where the environment ended with the action. A limit on the length is no end: there would have been more to be had."""
        return self._last_NS & self.terminated_N[:, None]

    @property
    def _last_NS(self) -> Bool[Tensor, "N S"]:
        if self.shape[1] == 1:
            return torch.ones_like(self.terminated_N)[:, None]
        return torch.arange(self.shape[1], device=self.length_N.device) == self.length_N[:, None] - 1

    def each(self) -> tuple[Steps, Bool[Tensor, "N S"]]:
        real_NS = self.real_NS
        single = Steps(
            observation_NSO=self.observation_NSO[real_NS][:, None],
            action_NSA=self.action_NSA[real_NS][:, None],
            final_NO=self.next_NSO[real_NS],
            length_N=torch.ones_like(real_NS[real_NS], dtype=torch.long),
            terminated_N=self.ended_NS[real_NS],
        )
        return single, real_NS

    def select(self, rows: Int[Tensor, " M"]) -> Steps:
        rows = rows.to(self.length_N.device)
        length_N = self.length_N.index_select(0, rows)
        longest = int(length_N.max())
        return Steps(
            observation_NSO=self.observation_NSO[:, :longest].index_select(0, rows),
            action_NSA=self.action_NSA[:, :longest].index_select(0, rows),
            final_NO=self.final_NO.index_select(0, rows),
            length_N=length_N,
            terminated_N=self.terminated_N.index_select(0, rows),
        )

    @classmethod
    def stack(cls, items: Sequence[Steps]) -> Steps:  # pyrefly: ignore[bad-override]; a batch is of one kind
        longest = max(item.shape[1] for item in items)

        def padded(x_NSX: Tensor) -> Tensor:
            return nn.functional.pad(x_NSX, (0, 0, 0, longest - x_NSX.shape[1]))

        return Steps(
            observation_NSO=torch.cat([padded(item.observation_NSO) for item in items]),
            action_NSA=torch.cat([padded(item.action_NSA) for item in items]),
            final_NO=torch.cat([item.final_NO for item in items]),
            length_N=torch.cat([item.length_N for item in items]),
            terminated_N=torch.cat([item.terminated_N for item in items]),
        )

    def to(self, device: torch.device) -> Steps:
        return Steps(
            observation_NSO=self.observation_NSO.to(device),
            action_NSA=self.action_NSA.to(device),
            final_NO=self.final_NO.to(device),
            length_N=self.length_N.to(device),
            terminated_N=self.terminated_N.to(device),
        )


def filled(sizes: Sequence[int]) -> Sequence[int]:
    """The sizes of a network's layers, inputs first, or ValueError: torch makes a layer of nothing, or fails in words of its own."""
    if min(sizes) < 1:
        raise ValueError(
            f"a network has layers of {', '.join(map(str, sizes))} numbers, from observations to outputs; each is at least 1: set "
            "hidden, observations and actions above 0"
        )
    return sizes


def real_of(steps: Steps) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """What takes a column [N, S, ...] to the K real decisions, and what puts [K, ...] back at their places, 0 on padding. Both are
    views where all rows are of one length: an index by a mask takes as long as a layer of a small network."""
    if steps.even:
        return lambda x_NSX: x_NSX.flatten(0, 1), lambda x_KX: x_KX.unflatten(0, steps.shape)
    real_NS = steps.real_NS

    def placed(x_KX: Tensor) -> Tensor:
        return x_KX.new_zeros(*steps.shape, *x_KX.shape[1:]).index_put((real_NS,), x_KX)

    return lambda x_NSX: x_NSX[real_NS], placed


def mlp(sizes: Sequence[int], last_gain: float, seed: int) -> nn.Sequential:
    """Linear layers, tanh between them; orthogonal weights of gain sqrt(2), the last layer of ``last_gain``; zero biases."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    filled(sizes)
    for i in range(len(sizes) - 1):
        last = i == len(sizes) - 2
        linear = nn.Linear(sizes[i], sizes[i + 1])
        nn.init.orthogonal_(linear.weight, last_gain if last else math.sqrt(2), generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)


def relu_mlp(sizes: Sequence[int], seed: int) -> nn.Sequential:
    """Linear layers, ReLU between them, weights and biases as torch draws them: uniform up to 1 / sqrt(inputs).

    Where a value is followed uphill this is the better start: with the small last layer of ``mlp`` SAC on Pendulum stood at -630 and
    -352 after 5,000 steps on two seeds of three.
    """
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(filled(sizes)):
        linear, reach = nn.Linear(inputs, outputs), 1 / math.sqrt(inputs)
        nn.init.uniform_(linear.weight, -reach, reach, generator=generator)
        nn.init.uniform_(linear.bias, -reach, reach, generator=generator)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def output_of(net: nn.Sequential, x_BI: Float[Tensor, "B I"]) -> Float[Tensor, "B J"]:
    """The output of such a network, computed in the type of its weights; past torch's hooks for modules, of which none is set here and
    which take a third as long as the layers."""
    layers = [*net]
    assert isinstance(layers[0], nn.Linear)
    x_BI = x_BI.to(layers[0].weight.dtype)
    for layer in layers:
        x_BI = layer.forward(x_BI)
    return x_BI.float()


@dataclass(frozen=True, kw_only=True)
class StepSampling(AbstractSampling):
    """How actions are sampled: at a temperature, at most ``max_length`` per episode."""

    @property
    def full(self) -> bool:
        return True


STEPS = Family(unit="env_steps", sampling=StepSampling)
DENSITIES = Family(unit="env_steps", sampling=StepSampling, densities=True)
NO_DENSITY = Family(unit="env_steps", sampling=StepSampling, densities=True, likelihoods=False)


class AbstractControlPolicy(AbstractPolicy):
    """A distribution over actions given only the current observation: no memory, so steps are evaluated in parallel.

    Temperature T means p(a)^(1/T), normalised, as it does for tokens; 0 is the mode, whose log-probability counts as 0.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"entropy_NS"})

    config: dict[str, Any]  # what the constructor needs; saved beside the weights

    def __init__(self) -> None:
        super().__init__()
        self.normalizer: Normalizer | None = None  # not of the class: what that has hides a module of the same name

    def normalizes(self, observations: int, wanted: bool) -> None:
        """Let it see observations in units of their own spread, or as they are."""
        if wanted:
            filled([observations])
            self.normalizer = Normalizer(observations)

    def normal(self, observation_BO: Float[Tensor, "*B O"]) -> Float[Tensor, "*B O"]:
        """Observations as its network sees them, and a critic of its actions."""
        return observation_BO if self.normalizer is None else self.normalizer(observation_BO)

    @property
    @abstractmethod
    def interface(self) -> str:
        """Its observations and actions, in the words of ``Environment.interface``."""

    @abstractmethod
    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S A"]:
        """All the randomness of one rollout, generated before it starts."""

    @abstractmethod
    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Shaped[Tensor, "B A"], Float[Tensor, " B"]]:
        """Actions, each from its noise, and their log-probabilities."""

    @abstractmethod
    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """Log-probabilities of given actions, and the entropy of the distributions they come from."""

    def assess_each(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> Float[Tensor, "K A"]:
        """Log-probabilities of each number of given actions, which add up to those of ``assess``, where a policy provides them."""
        raise NotImplementedError(f"{type(self).__name__} does not draw the numbers of an action independently")

    def mean_action(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The mean of actions, with gradient, where a policy provides it."""
        raise NotImplementedError(f"{type(self).__name__} does not tell the mean of its actions")

    def done(self, observation_BO: Float[Tensor, "B O"], action_BA: Shaped[Tensor, "B A"]) -> Shaped[Tensor, "B A"]:
        """What the environment is given for drawn actions: these, unless the policy draws something that stands for them."""
        return action_BA

    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        columns: Collection[str] = (),
        checkpointing: bool = False,
    ) -> Evaluation:
        # Checkpointing is not worth its time here: an activation is a few hundred floats a step.
        assert isinstance(decisions, Steps), type(decisions)
        real, placed = real_of(decisions)
        seen_KO, action_KA = real(decisions.observation_NSO), real(decisions.action_NSA)
        logprob_K, entropy_K = self.assess(seen_KO, action_KA, temperature)
        asked = {"entropy_NS": placed(entropy_K)} if "entropy_NS" in columns else {}
        if EACH in columns:
            asked[EACH] = placed(self.assess_each(seen_KO, action_KA, temperature))
        if MEAN in columns:
            asked[MEAN] = placed(self.mean_action(seen_KO))
        return Evaluation(logprob_NS=placed(logprob_K), columns=asked)

    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        assert isinstance(decisions, Steps), type(decisions)
        actions = decisions.action_NSA[0, : int(decisions.length_N[0])].tolist()
        return [" ".join(f"{number:.3g}" for number in action) for action in actions]

    def save(self, directory: Path) -> None:
        from safetensors.torch import save_file

        directory.mkdir(parents=True, exist_ok=True)
        save_file({name: x.contiguous() for name, x in self.state_dict().items()}, directory / WEIGHTS)
        (directory / CONFIG).write_text(json.dumps(self.config, indent=2) + "\n")


class AbstractRealPolicy(AbstractControlPolicy):
    """Takes a vector of real actions, drawn by a normal number for each."""

    @property
    def actions(self) -> int:
        return self.config["actions"]

    @property
    def interface(self) -> str:
        return f"{self.config['observations']} observations, {self.actions} real actions"

    def bounded(self, observations: int, actions: int, hidden: list[int], bound: float, normalize: bool) -> None:
        """Its sizes, which are saved with it, and the largest action."""
        self.config = {
            "observations": observations,
            "actions": actions,
            "hidden": hidden,
            "bound": bound,
            "normalize": normalize,
        }
        self.bound = bound
        self.normalizes(observations, normalize)

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S A"]:
        return torch.from_numpy(generator.standard_normal((steps, self.actions), dtype=np.float32))


class AbstractChoicePolicy(AbstractControlPolicy):
    """Takes one of several actions, drawn by one number in [0, 1) a step."""

    @property
    def interface(self) -> str:
        return f"{self.config['observations']} observations, {self.config['actions']} choices"

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S 1"]:
        return torch.from_numpy(generator.random((steps, 1), dtype=np.float32))


def without_density(spec: AbstractPolicySpec, whole: Composition) -> Iterator[Verdict]:
    """What a policy says that draws actions without a density."""
    if not whole.doing(FORWARD):
        yield Refusal(
            f"{type(spec).__name__} draws actions without a density, which {type(whole.run.learns).__name__} learns by: "
            "policy='SquashedGaussian(observations=..., actions=...)', or begin with fql, idql or expo"
        )


@dataclass(frozen=True, kw_only=True)
class AbstractBoundedSpec(AbstractPolicySpec):
    """A policy on ``observations`` inputs with ``actions`` continuous actions in [-``bound``, ``bound``], or the one saved in the
    directory ``model``. ``normalize``: it sees observations in units of their own spread."""

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    bound: float = 1.0
    normalize: bool = False
    model: str = ""

    def __post_init__(self) -> None:
        check_bound(self.bound)

    def at(self, directory: Path) -> AbstractBoundedSpec:
        return replace(self, model=str(directory))


def check_bound(bound: float) -> None:
    if not 0 < bound < math.inf:
        raise ValueError(f"policy.bound is {bound}; it is the largest action, a number above 0")


P = TypeVar("P", bound=AbstractControlPolicy)


def made(kind: Callable[..., P], spec: AbstractPolicySpec, seed: int) -> P:
    """The policy that was saved in the specification's directory ``model``; where that is empty, one by its other fields."""
    sizes = sizes_of(spec)
    model = str(sizes.pop("model"))
    return saved(kind, model, seed) if model else kind(**sizes, seed=seed).eval()


def sizes_of(spec: object) -> dict[str, Any]:
    """Its fields as a saved configuration has them: lists in place of tuples, mappings in place of parts."""

    def written(value: Any) -> Any:
        if is_dataclass(value):
            return sizes_of(value)
        return list(value) if isinstance(value, tuple) else value

    return {name: written(value) for name, value in vars(spec).items()}


def saved(kind: Callable[..., P], directory: str, seed: int) -> P:
    """The policy that was saved in this directory, or ValueError where it is of another kind."""
    try:
        policy = kind(**read_config(directory), seed=seed)
    except TypeError as error:
        name = getattr(kind, "__name__", "this policy")
        raise ValueError(f"policy.model={directory} was saved by another kind of policy than {name}") from error
    read_weights(policy, directory)
    return policy.eval()


def read_config(directory: str, field: str = "policy.model") -> dict[str, Any]:
    """The configuration saved in this directory, which ``field`` names."""
    path = Path(directory) / CONFIG
    if not path.is_file():
        saved = sorted(path.parent.parent.glob(f"checkpoints/step_*/model/{CONFIG}"))
        so_far = f" (that run has not ended; what it learned so far is in {saved[-1].parent})" if saved else ""
        raise ValueError(
            f"{directory} holds no {CONFIG}; {field} must be a directory that a control run saved, as runs/RUN/model{so_far}"
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no configuration; {field} must be a directory that a control run saved")
    return found


def config_of(spec: AbstractPolicySpec, names: Iterable[str], by: str) -> dict[str, Any]:
    """The configuration saved in the specification's directory ``model``; ValueError where it lacks one of these names, which runs
    of the recipes ``by`` save: then it is another kind of policy."""
    directory, kind = vars(spec)["model"], type(spec).__name__
    found = read_config(directory)
    if lacking := sorted(set(names) - found.keys()):
        raise ValueError(
            f"{directory} holds no {kind} policy, for its configuration says nothing of {lacking[0]}: policy.model must be a directory "
            f"that a run of {by} saved"
        )
    return found


def unread(spec: AbstractPolicySpec) -> dict[str, Any]:
    """What was saved in a control specification's directory ``model`` of each field that says something else here, and so has no
    effect; sizes apart, which the environment decides."""
    model = vars(spec).get("model")
    if spec.family.sampling is not StepSampling or not model or not (Path(model) / CONFIG).is_file():
        return {}
    own = sizes_of(spec)
    return {
        name: value
        for name, value in read_config(model).items()
        if name in own.keys() - {"observations", "actions"} and own[name] != value
    }


def read_tensors(directory: str) -> dict[str, Tensor]:
    """The weights saved in this directory, by their names."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(Path(directory) / WEIGHTS)
    except (OSError, SafetensorError) as error:  # a missing file, or one that is cut off
        raise ValueError(f"{directory}/{WEIGHTS} cannot be read, so it is missing or damaged: {error}") from error


def read_weights(module: nn.Module, directory: str, part: str = "") -> None:
    """Load the weights saved in this directory, or those whose names begin with ``part``, into what was made from its
    configuration."""
    weights = read_tensors(directory)
    try:
        module.load_state_dict({n.removeprefix(part): weight for n, weight in weights.items() if n.startswith(part)})
    except RuntimeError as error:  # tensors of other names or shapes
        raise ValueError(f"{directory}/{WEIGHTS} does not load as {type(module).__name__}: {error}") from error
