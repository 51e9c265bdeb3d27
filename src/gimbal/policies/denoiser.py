"""Denoising policies: a diffusers network samples step by step and evaluates the sampled steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gimbal import durable
from gimbal.composition import FORWARD, SHOWS, STREAMS, Advice, Composition, Refusal, Verdict
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.policies import diffusers, samplers
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec, Evaluation, Family, place_of
from gimbal.policies.diffusers import DIFFUSED, DIGITS, RING, SHAPES, SHOWN, STREAM, LoadedParts, NoiseSchedule
from gimbal.policies.lora import LoRA, inject, merged, save_adapter
from gimbal.policies.paths import NO_LABEL, ODE, PATHS, TRAILING, Paths, PathSampling
from gimbal.records import AbstractDecisions, AbstractSampling, Task

STRONGEST = 100  # guidance; that of published models is from 1 to 15
LABEL = "label"  # column of a task: the class that is asked for
GIVEN = "given"  # and the channels that a policy with history is to see beside the noise, flat


class DenoiserPolicy(AbstractPolicy):
    """A network that predicts the noise in a noisy sample; it samples steps and evaluates recorded ones.

    The network is called on ``batch`` samples at a time, with padding in the last call: rounding depends on a matrix product's
    size, so this gives sampler and trainer the same bits in any batch. ``guidance`` w is part of the policy: the output is v + (w -
    1)(v - v of no label), in sampling and training; 1 is none.

    Columns of sampled steps: ``mean_NSD`` of the next state, flattened over the dimensions; ``std_NS``; ``scale_NS``, the factor of
    log-probabilities (1, or 1 / D where they are means); ``shift_NSD``, the mean minus the sampler's; ``velocity_NSD``, eps - x0 as the
    network predicts it.

    ``jumps``: the network is told the span of a step, the difference of noise between its ends, as one more channel of its input. Its
    output is then the mean velocity over the step, and with span 0 the velocity, which is what losses of the forward process ask for.

    ``history``: the network sees a picture beside the noise, in as many channels as a sample has, and in a further one how much of each
    pixel is known: the block before, and ones; or what the task shows (column ``given``); zeros where there is neither. It is what a
    record has as ``given_ND``.
    """

    provides: ClassVar[frozenset[str]] = frozenset({"mean_NSD", "std_NS", "scale_NS", "shift_NSD", "velocity_NSD"})

    def __init__(self, parts: LoadedParts, *, guidance: float, batch: int, origin: Path) -> None:
        super().__init__()
        self.model: Any = parts.network
        self._parts, self._origin = parts, origin
        self.process, self.guidance, self.batch = parts.process, guidance, batch
        config = parts.network.config
        size = config.sample_size
        told = diffusers.told(config)
        self.jumps, self.history = told.jumps, told.history
        self.sample_shape = (told.channels, *([size, size] if isinstance(size, int) else size))
        transformer = diffusers.CLASSES in config
        self.classes = diffusers.classes(config)
        # A DiT has an embedding more than classes, for no class in particular. Another network's classes are all it knows.
        self.null = self.classes if transformer else None
        self.source = str(origin)

    def extent(self, decisions: AbstractDecisions) -> tuple[int, int]:
        assert isinstance(decisions, Paths), type(decisions)
        pixels = math.prod(self.sample_shape[1:])
        return int(decisions.cost_N.sum()) // pixels, pixels

    def schedule(self, sampling: PathSampling) -> NoiseSchedule:
        trailing = sampling.spacing == TRAILING
        return self.process.schedule(sampling.max_length, trailing=trailing, begins=sampling.begins)

    def begun(
        self, eps_D: Float[Tensor, ...], given_D: Float[Tensor, ...] | None, sampling: PathSampling
    ) -> Float[Tensor, ...]:
        """The state in which a path begins: this noise, or below strength 1 the picture that is shown, with some of it."""
        if sampling.strength == 1:
            return eps_D
        if given_D is None:
            raise ValueError(
                f"sampling.strength is {sampling.strength}, and {self.source} sees no picture to begin with: set "
                "sampling.strength=1 and sampling.told=0, or policy.model=gimbal-digits-shown"
            )
        picture_D, place_1 = given_D[: len(eps_D)], torch.tensor([sampling.strength])
        return self.process.noised(picture_D[None], eps_D[None], place_1)[0][0]

    def label(self, task: Task) -> int:
        """The class that a task asks for, or NO_LABEL."""
        label = task.columns.get(LABEL, NO_LABEL)
        if not isinstance(label, int) or not NO_LABEL <= label < max(self.classes, 0):
            raise ValueError(f"task {task.id} asks for class {label!r}; {self.source} has {self.classes} classes")
        if label == NO_LABEL and self.classes and self.null is None:
            raise ValueError(
                f"task {task.id} asks for no class, but {self.source} samples only with one: name one in the column {LABEL} of "
                "its row, or in labels of Conditions (tasks.labels, held_out.tasks.labels)"
            )
        return label

    def accepts(self, task: Task, length: int) -> str:
        label = self.label(task)
        self.given(None, task.columns.get(GIVEN))
        if self.guidance != 1 and label == NO_LABEL:
            return (
                f"policy.guidance={self.guidance:g} pulls towards the class that a task asks for, and task {task.id} asks for none, so "
                f"it does nothing there: name a class in the column {LABEL}, or set policy.guidance=1"
            )
        return ""

    def step(
        self,
        x_KD: Float[Tensor, "K ..."],
        level_KL: Float[Tensor, "K 4"],
        time_K: Float[Tensor, " K"],
        amplitude_K: Float[Tensor, " K"],
        label_K: Int[Tensor, " K"],
        sampler: str,
        given_KD: Float[Tensor, "K ..."] | None = None,
    ) -> tuple[Float[Tensor, "K ..."], Float[Tensor, " K"]]:
        """Mean and standard deviation of the next states."""
        clean_KD, noise_KD = self._split(x_KD, level_KL, time_K, label_K, given_KD)
        return samplers.step(sampler, x_KD, clean_KD, noise_KD, level_KL, amplitude_K)

    def _split(
        self, x_KD: Tensor, level_KL: Tensor, time_K: Tensor, label_K: Tensor, given_KD: Tensor | None
    ) -> tuple[Float[Tensor, "K ..."], Float[Tensor, "K ..."]]:
        """The sample and the noise that the network finds in each state."""
        found_KD = self.found(x_KD, time_K, label_K, given_KD, level_KL[:, 1] - level_KL[:, 3])
        return self.process.split(x_KD, found_KD, level_KL)

    def found(
        self,
        x_KD: Float[Tensor, "K ..."],
        time_K: Float[Tensor, " K"],
        label_K: Int[Tensor, " K"],
        given_KD: Float[Tensor, "K ..."] | None = None,
        span_K: Float[Tensor, " K"] | None = None,
    ) -> Float[Tensor, "K ..."]:
        """The network's output, with guidance, in float32. ``given_KD`` is what it sees beside the noise, where it has ``history``;
        ``span_K`` is read where it ``jumps``; 0 without."""
        if self.history:
            assert given_KD is not None, "a policy with history is told the block before, or zeros"
            x_KD = torch.cat([x_KD, given_KD], 1)
        if self.jumps:
            span_K = torch.zeros_like(time_K) if span_K is None else span_K
            x_KD = torch.cat([x_KD, samplers.wide(span_K, x_KD).expand_as(x_KD[:, :1])], 1)
        said_KD = self._called(x_KD, time_K, label_K)
        if self.guidance == 1:
            return said_KD
        unasked_KD = self._called(x_KD, time_K, torch.full_like(label_K, NO_LABEL))
        return unasked_KD + self.guidance * (said_KD - unasked_KD)

    def given(
        self, before: Float[Tensor, ...] | None, shown: Sequence[float] | None = None
    ) -> Float[Tensor, ...] | None:
        """What the network sees beside the noise: the block before and ones, or what its task shows, or zeros. None without
        ``history``."""
        if not self.history:
            return None
        channels, *size = self.sample_shape
        if before is None and shown is not None:
            if len(shown) != (channels + 1) * math.prod(size):
                raise ValueError(
                    f"a task shows {len(shown)} numbers in its column {GIVEN}, and {self.source} sees {channels + 1} channels of "
                    f"{' x '.join(map(str, size))}: a picture, and how much of each pixel is known, from 0 to 1"
                )
            return torch.tensor(shown, dtype=torch.float32).reshape(channels + 1, *size)
        if before is None:
            return torch.zeros(channels + 1, *size)
        return torch.cat([before.cpu().float(), torch.ones(1, *size)])

    def _called(self, x_KD: Tensor, time_K: Tensor, label_K: Tensor) -> Tensor:
        label_K = label_K if self.null is None else label_K.where(label_K != NO_LABEL, self.null)
        said = []
        for x_BD, time_B, label_B in zip(
            x_KD.split(self.batch), time_K.split(self.batch), label_K.split(self.batch), strict=True
        ):
            k, missing = len(x_BD), self.batch - len(x_BD)
            if missing:  # copies of the first: all zeros could be a network's worst case
                x_BD = torch.cat([x_BD, x_BD[:1].detach().expand(missing, *x_BD.shape[1:])])
                time_B = torch.cat([time_B, time_B[:1].expand(missing)])
                label_B = torch.cat([label_B, label_B[:1].expand(missing)])
            labels = label_B if self.classes else None
            said.append(self.model(x_BD.to(self.model.dtype), timestep=time_B, class_labels=labels).sample[:k].float())
        # A network that learned variances returns them after the rest.
        return torch.cat(said)[:, : self.sample_shape[0]]

    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        columns: Collection[str] = (),
        checkpointing: bool = False,
    ) -> Evaluation:
        # Each step carries its own amplitude, so there is no temperature left to apply.
        assert isinstance(decisions, Paths), type(decisions)
        self.model.eval()
        if checkpointing:
            self.model.enable_gradient_checkpointing()
        row_K, step_K = at = decisions.drawn_NS.nonzero(as_tuple=True)
        # A sample of the ODE is one decision: how well the first step predicts it. Nothing learns from that number; it only shows
        # which weights sampled it.
        ode = decisions.sampler == ODE
        begun = (row_K, torch.zeros_like(step_K)) if ode else at
        x_KD, level_KL = decisions.state_NXD[begun], decisions.level_NSL[begun]
        given_KD = None if decisions.given_ND is None else decisions.given_ND[row_K]
        clean_KD, noise_KD = self._split(x_KD, level_KL, decisions.time_NS[begun], decisions.label_N[row_K], given_KD)
        amplitude_K = decisions.amplitude_NS[begun]
        mean_KD, std_K = samplers.step(decisions.sampler, x_KD, clean_KD, noise_KD, level_KL, amplitude_K)
        std_K = torch.ones_like(std_K) if ode else std_K
        after_KD = decisions.state_NXD[row_K, step_K + 1]
        logprob_K = samplers.log_density(after_KD, mean_KD, std_K, decisions.scale)

        def scatter(x_K: Tensor) -> Tensor:
            return x_K.new_zeros(*decisions.shape, *x_K.shape[1:]).index_put(at, x_K)

        def column(name: str) -> Tensor:
            match name:
                case "mean_NSD":
                    return mean_KD.flatten(1)
                case "std_NS":
                    return std_K
                case "scale_NS":
                    return torch.full_like(std_K, decisions.scale)
                case "velocity_NSD":
                    return (noise_KD - clean_KD).flatten(1)
                case _:
                    return (mean_KD - decisions.mean_NSD[begun]).flatten(1)

        return Evaluation(logprob_NS=scatter(logprob_K), columns={name: scatter(column(name)) for name in columns})

    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        assert isinstance(decisions, Paths), type(decisions)
        n, steps = 0, int(decisions.length_N[0])
        said = zip(decisions.level_NSL[n, :steps, 1].tolist(), decisions.std_NS[n, :steps].tolist(), strict=True)
        return [f"{noise:.2f}{f'±{std:.2f}' if std else ''} " for noise, std in said]

    def weights(self) -> dict[str, Tensor]:
        """All weights, or the adapter where the rest is frozen."""
        every = self.state_dict(keep_vars=True).items()
        return {name: x.detach() for name, x in every if not isinstance(x, nn.Parameter) or x.requires_grad}

    def save(self, directory: Path) -> None:
        """In diffusers' layout; adapters are merged in, and also saved separately for further training."""
        directory.mkdir(parents=True, exist_ok=True)
        network = self.model
        with durable.named(directory):
            if any(".lora_" in name for name, _ in self.model.named_parameters()):
                save_adapter(self.model, directory)
                network = type(self.model).from_config(self.model.config)
                # diffusers' own method warns of what it keeps in float32 while it loads.
                nn.Module.to(network, self.model.dtype)
                network.load_state_dict(merged(self.model))
            diffusers.write(network, self._parts, directory, self._origin)


@dataclass(frozen=True, kw_only=True)
class Denoiser(AbstractPolicySpec):
    """A flow or diffusion model: a directory in diffusers' layout, with transformer/ or unet/ and scheduler/, or ``gimbal-digits``
    (a flow) or ``gimbal-digits-ddim`` (diffusion), which ship with the package.

    Networks take an image, a time and a class (DiTTransformer2DModel, UNet2DModel); schedulers are FlowMatchEulerDiscrete, DDIM
    and DDPM, with any prediction type (velocity, epsilon, sample, v_prediction). ``fresh`` initialises the weights from the run's seed,
    so configurations are enough. ``guidance`` is the policy's, in sampling and training: 1 is none, as in the published recipes' stable
    runs. ``lora`` trains only adapters. ``batch`` samples go through the network at a time. ``jumps`` tells a flow's network how far
    each step goes, so that it can learn long ones (update=FlowMap()); until it does, it samples as before. ``history`` shows the
    network the block before, in a stream of blocks (workflow=Streamed()), or the part of a picture that its task shows
    (tasks=ShownPictures()), by channels whose weights begin at 0 too. A model that was saved with one of them keeps it. Two have
    history: ``gimbal-digits-stream`` draws another digit of the same class after a digit, ``gimbal-digits-shown`` completes a digit.
    ``gimbal-shapes`` (diffusion) draws squares, discs and crosses in colour, of 16x16 pixels. ``gimbal-ring`` is a flow of points in
    the plane: samples of one pixel and two channels.
    """

    family: ClassVar[Family] = PATHS
    shipped: ClassVar[tuple[str, ...]] = (DIGITS, DIFFUSED, STREAM, SHOWN, SHAPES, RING)

    model: str = DIGITS
    fresh: bool = False
    guidance: float = 1.0
    lora: LoRA | None = None
    batch: int = 64
    jumps: bool = False
    history: bool = False

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"policy.batch is {self.batch}; it must be at least 1")
        if not abs(self.guidance) <= STRONGEST:
            raise ValueError(
                f"policy.guidance is {self.guidance}; it must be from -{STRONGEST} to {STRONGEST}, where 1 is none"
            )

    @property
    def path(self) -> str:
        return place_of(self.model, self.shipped)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        sampling = whole.run.sampling
        told = self._told
        saved = told.jumps
        if (self.jumps or saved) and isinstance(sampling, PathSampling) and sampling.sampler != ODE:
            other = f"a model other than {self.model}, which was saved with it" if saved else "policy.jumps=false"
            yield Refusal(
                f"policy.jumps=true has a network say where a step ends, and sampling.sampler={sampling.sampler} asks it where the "
                f"path ends: set sampling.sampler=ode, or {other}"
            )
        if self.lora is not None and ((self.jumps and not saved) or (self.history and not told.history)):
            what = "the span of a step" if self.jumps and not saved else "the block before"
            yield Refusal(
                f"policy.lora trains linear layers, and {what} enters by weights of another layer, which are 0 before training and "
                "would stay so: set policy.lora=None"
            )
        if self.history and not whole.doing(STREAMS) and not whole.doing(SHOWS):
            yield Refusal(
                "policy.history=true shows the network the block before, and this workflow draws single samples: set "
                "workflow='Streamed()', or policy.history=false"
            )
        if whole.doing(SHOWS) and not self.sees_history:
            yield Refusal(
                "these tasks show a part of a picture, which this policy does not see: set policy.model=gimbal-digits-shown, or "
                "policy.history=true"
            )
        if isinstance(sampling, PathSampling) and sampling.strength < 1 and not whole.doing(SHOWS):
            yield Refusal(
                f"sampling.strength={sampling.strength} begins with the picture that a task shows, and these tasks show none: set "
                "sampling.strength=1 and sampling.told=0, or tasks='ShownPictures()'"
            )
        if isinstance(sampling, PathSampling) and sampling.sampler == ODE and not whole.doing(FORWARD):
            yield Refusal(
                "sampling.sampler=ode samples no step that a policy gradient could make likelier: set sampler=flow_sde (of "
                "diffusion: ddim), or an update of finished samples, such as update=DiffusionNFT()"
            )

        elif isinstance(sampling, PathSampling) and sampling.sampler != ODE and not sampling.drawn(sampling.max_length):
            ode = ", or sampling.sampler=ode" if whole.doing(FORWARD) else ""
            yield Refusal(
                f"no step is sampled from sampling.first={sampling.first} to sampling.last={sampling.last} of "
                f"sampling.max_length={sampling.max_length} steps (the last of which never is), so there is nothing to train on: set "
                f"sampling.first=0 sampling.last=-1, or more steps{ode}"
            )
        if isinstance(sampling, PathSampling) and sampling.reduce == "mean" and sampling.sampler != ODE:
            for part in whole.all(AbstractObjective):
                if UPDATE in part.consumes and "scale_NS" not in part.needs:
                    yield Advice(
                        f"{type(part).__name__} bounds ratios of sums, and sampling.reduce=mean divides log-probabilities by the "
                        "numbers of a sample, so that ratios hardly leave 1 and no bound acts: set objective=ClippedStep(), whose "
                        "range follows, or sampling.reduce=sum"
                    )

    @property
    def sees_history(self) -> bool:
        """Whether its network sees the block before: as set, or as the model was saved."""
        return self.history or self._told.history

    @property
    def only_by_class(self) -> bool:
        """Whether its network draws only samples of a class that is named."""
        return diffusers.CLASSES not in self._config and self.classes > 0

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of what its network draws: channels, height, width; () if that cannot be read yet."""
        size = self._config.get("sample_size")
        sides = [size, size] if isinstance(size, int) else size or []
        return (self._told.channels, *sides) if sides else ()

    @property
    def classes(self) -> int:
        """How many its network was trained on; 0 if it cannot be read yet."""
        return diffusers.classes(self._config)

    @property
    def _told(self) -> diffusers.Told:
        """What the model was saved with."""
        return diffusers.told(self._config) if self._config else diffusers.Told(channels=0)

    @property
    def _config(self) -> dict[str, Any]:
        """What is saved of its network; {} if it cannot be read, as check_files says."""
        try:
            return diffusers.described(Path(self.path))[1]
        except (OSError, ValueError):
            return {}

    def load(self, seed: int = 0) -> DenoiserPolicy:
        parts = diffusers.read(self.path, seed if self.fresh else None)
        told = diffusers.told(parts.network.config)
        if self.jumps and not told.jumps and not parts.process.flow:
            raise ValueError(
                f"policy.jumps=true is for flows, and {self.model} has the scheduler {parts.process.name}: leave it out"
            )
        if (self.jumps and not told.jumps) or (self.history and not told.history):
            parts = replace(parts, network=diffusers.telling(parts.network, history=self.history, jumps=self.jumps))
        if self.lora is not None:
            inject(parts.network, self.lora, seed)
        policy = DenoiserPolicy(parts, guidance=self.guidance, batch=self.batch, origin=Path(self.path))
        if self.guidance != 1 and policy.null is None:
            raise ValueError(
                f"policy.guidance is {self.guidance}, and {self.model} has no unconditional class: leave it out"
            )
        return policy.eval()

    def check_files(self) -> None:
        directory = Path(self.path)
        diffusers.described(directory)
        diffusers.scheduled(directory)
        if not self.fresh:
            diffusers.check_weights(directory)

    def unknown(self, labels: Iterable[int]) -> str:
        """The classes that its network lacks, in words; "" if there are none, or if it cannot be read yet."""
        if not self._config:
            return ""
        classes = self.classes
        beyond = sorted({label for label in labels if label >= classes})
        names = f"classes 0 to {classes - 1}" if classes else "no classes"
        return f"class {beyond[0]}, and {self.model} has {names}" if beyond else ""

    def at(self, directory: Path) -> Denoiser:
        if self.lora is not None:
            return replace(self, lora=replace(self.lora, adapter=str(directory)))
        return replace(self, model=str(directory), fresh=False)


def single_blocks(update: str, whole: Composition) -> Iterator[Verdict]:
    """The refusal of an update that does not know what its samples follow, where the policy sees the block before."""
    if isinstance(whole.run.policy, Denoiser) and whole.run.policy.sees_history:
        yield Refusal(
            f"{update} learns from samples that follow no other, and this policy sees the block before: set policy.model=gimbal-digits "
            "policy.history=false workflow='SingleTurn()', or update='DistributionMatching()'"
        )


def fitting(policy: DenoiserPolicy, sampling: AbstractSampling) -> PathSampling:
    """ValueError if the sampler does not fit this kind of model."""
    if not isinstance(sampling, PathSampling):
        raise ValueError(f"{sampling} is not for paths: a denoising policy needs sampling=PathSampling(...)")
    wanted = samplers.FLOWS if policy.process.flow else samplers.DIFFUSIONS
    if sampling.sampler not in wanted:
        raise ValueError(
            f"sampling.sampler is {sampling.sampler}, and {policy.source} has the scheduler {policy.process.name}: choose "
            f"{' or '.join(wanted)}"
        )
    if sampling.spacing == TRAILING and not policy.process.flow:
        raise ValueError(
            f"sampling.spacing=trailing is for flows, and {policy.source} has the scheduler {policy.process.name}: set "
            "timestep_spacing in its scheduler/scheduler_config.json"
        )
    return sampling


def alike(policy: DenoiserPolicy, teacher: DenoiserPolicy) -> None:
    """ValueError unless the teacher denoises the same kind of sample by the same noise schedule as the policy."""
    for name, of in _KIND.items():
        if (own := of(policy)) != (theirs := of(teacher)):
            raise ValueError(
                f"the teacher {teacher.source} has {name} {theirs}, and the policy {policy.source} has {own}: choose a teacher that "
                "denoises the same samples"
            )


_KIND: dict[str, Callable[[DenoiserPolicy], Any]] = {
    "the scheduler": lambda policy: policy.process.name,
    "the training steps": lambda policy: policy.process.scheduler.config.num_train_timesteps,
    "samples of shape": lambda policy: policy.sample_shape,
    "this many classes": lambda policy: policy.classes,
    "history": lambda policy: policy.history,
}
