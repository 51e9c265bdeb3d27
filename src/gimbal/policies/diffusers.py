"""Models and schedules of diffusers: read from the directories that its pipelines save, and written so that it reads them again."""

from __future__ import annotations

import inspect
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.config.own import out_of_memory, some
from gimbal.policies.samplers import wide

# The models shipped in the package.
DIGITS, DIFFUSED, STREAM, SHOWN, SHAPES, RING = (
    "gimbal-digits",
    "gimbal-digits-ddim",
    "gimbal-digits-stream",
    "gimbal-digits-shown",
    "gimbal-shapes",
    "gimbal-ring",
)
NETWORKS = ("transformer", "unet")  # where pipelines keep theirs
CLASSES = "num_embeds_ada_norm"  # of a transformer
SCHEDULER, INDEX = "scheduler", "model_index.json"
FLOW, DDIM, DDPM = "FlowMatchEulerDiscreteScheduler", "DDIMScheduler", "DDPMScheduler"
SCHEDULED = "scheduler_config.json"
WEIGHTS = "diffusion_pytorch_model"  # what diffusers calls files of weights, in one or several pieces
INPUTS = {"hidden_states", "sample", "timestep", "class_labels"}  # of a forward pass, that we know how to give


@dataclass(frozen=True, kw_only=True)
class NoiseSchedule:
    """The steps from noise to a sample: where each starts and ends, (signal, noise) of both, and the network's time."""

    level_SL: Float[Tensor, "S 4"]
    time_S: Float[Tensor, " S"]


class Process:
    """What a diffusers scheduler states about a model: its noise levels, and what the network predicts.

    ``rederives``: whether the noise is recomputed from a clipped clean sample (DDPM does, DDIM does not).
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.name = scheduler, type(scheduler).__name__
        config = scheduler.config
        self.flow = self.name == FLOW
        self.rederives = self.name == DDPM
        self.predicts = "velocity" if self.flow else config.prediction_type
        clipped = not self.flow and config.clip_sample
        self.clip = float(config.clip_sample_range) if clipped else math.inf
        for name, only in self._allowed().items():
            if name in config and config[name] not in only:
                raise ValueError(
                    f"the scheduler has {name}={config[name]!r}, which gimbal does not support: set it to "
                    f"{' or '.join(map(repr, only))} in {SCHEDULER}/{SCHEDULED}"
                )

    def _allowed(self) -> dict[str, tuple[Any, ...]]:
        if self.flow:
            return {"use_dynamic_shifting": (False,), "invert_sigmas": (False,), "stochastic_sampling": (False,)}
        return {
            "prediction_type": ("epsilon", "sample", "v_prediction"),
            "thresholding": (False,),
            "variance_type": ("fixed_small", "fixed_small_log"),
        }

    def schedule(self, steps: int, *, trailing: bool = False, begins: float = 1.0) -> NoiseSchedule:
        """As ``set_timesteps`` and ``step`` of the scheduler have it; ``trailing``, of a flow: 1, 1 - 1 / S ... 1 / S, times
        ``begins``."""
        if trailing:
            self.scheduler.set_timesteps(sigmas=[begins * (1 - k / steps) for k in range(steps)])
        else:
            self.scheduler.set_timesteps(steps)
        time_S = self.scheduler.timesteps.float()
        if self.flow:
            sigma_X = self.scheduler.sigmas.float()
            from_S, to_S = sigma_X[:-1], sigma_X[1:]
            return NoiseSchedule(level_SL=torch.stack([1 - from_S, from_S, 1 - to_S, to_S], -1), time_S=time_S)
        kept_T = self.scheduler.alphas_cumprod.double()
        apart = self.scheduler.config.num_train_timesteps // steps
        end = torch.ones((), dtype=torch.float64)
        if self.name == DDIM:
            end = torch.as_tensor(self.scheduler.final_alpha_cumprod).double()
        now_S = kept_T[time_S.long()]
        to_S = time_S.long() - apart
        next_S = torch.where(to_S >= 0, kept_T[to_S.clamp(min=0)], end)
        levels = [now_S.sqrt(), (1 - now_S).sqrt(), next_S.sqrt(), (1 - next_S).sqrt()]
        return NoiseSchedule(level_SL=torch.stack(levels, -1).float(), time_S=time_S)

    def noised(
        self, clean_KD: Float[Tensor, "K ..."], eps_KD: Float[Tensor, "K ..."], place_K: Float[Tensor, " K"]
    ) -> tuple[Float[Tensor, "K ..."], Float[Tensor, "K 4"], Float[Tensor, " K"], Float[Tensor, "K ..."]]:
        """(state, levels, network's time, what the network should say) of clean samples at places in [0, 1) of the training levels:
        times of a flow, shifted as its schedule is, or the training steps of diffusion."""
        if self.flow:
            shift = float(self.scheduler.config.shift)
            noise_K = shift * place_K / (1 + (shift - 1) * place_K)
            signal_K, time_K = 1 - noise_K, noise_K * self.scheduler.config.num_train_timesteps
        else:
            kept_T = self.scheduler.alphas_cumprod.to(place_K.device)
            step_K = (place_K * len(kept_T)).long()
            signal_K, noise_K, time_K = kept_T[step_K].sqrt(), (1 - kept_T[step_K]).sqrt(), step_K.float()
        signal, noise = wide(signal_K, clean_KD), wide(noise_K, clean_KD)
        wanted = {"velocity": eps_KD - clean_KD, "epsilon": eps_KD, "sample": clean_KD}
        wanted["v_prediction"] = signal * eps_KD - noise * clean_KD
        level_KL = torch.stack([signal_K, noise_K, signal_K, noise_K], -1)
        return signal * clean_KD + noise * eps_KD, level_KL, time_K, wanted[self.predicts]

    def split(
        self, x_KD: Float[Tensor, "K ..."], found_KD: Float[Tensor, "K ..."], level_KL: Float[Tensor, "K 4"]
    ) -> tuple[Float[Tensor, "K ..."], Float[Tensor, "K ..."]]:
        """(x0, eps) by what the network found in x."""
        signal_K, noise_K = (wide(level_KL[:, i], x_KD) for i in (0, 1))
        if self.flow:
            return x_KD - noise_K * found_KD, x_KD + signal_K * found_KD
        match self.predicts:
            case "epsilon":
                clean_KD, eps_KD = (x_KD - noise_K * found_KD) / signal_K, found_KD
            case "sample":
                clean_KD, eps_KD = found_KD, (x_KD - signal_K * found_KD) / noise_K
            case _:
                clean_KD, eps_KD = signal_K * x_KD - noise_K * found_KD, signal_K * found_KD + noise_K * x_KD
        if math.isfinite(self.clip):
            clean_KD = clean_KD.clamp(-self.clip, self.clip)
            eps_KD = (x_KD - signal_K * clean_KD) / noise_K if self.rederives else eps_KD
        return clean_KD, eps_KD


@dataclass(frozen=True, kw_only=True)
class LoadedParts:
    """The contents of a directory: the network, the process, and the names under which a pipeline finds them."""

    network: Any
    process: Process
    place: str


def library() -> Any:
    """diffusers, which takes a second to import and is an extra."""
    try:
        import diffusers
    except ImportError as error:
        raise ValueError("denoising policies need diffusers: pip install -e '.[denoising]' in the clone") from error
    return diffusers


def described(directory: Path) -> tuple[str, dict[str, Any]]:
    """(where its network is, what config.json says of it)."""
    for place in NETWORKS:
        if (file := directory / place / "config.json").is_file():
            return place, _sensible(file, _OF_NETWORKS)
    raise ValueError(
        f"{directory} has no {' or '.join(f'{place}/config.json' for place in NETWORKS)}; policy.model must be a directory as a "
        f"diffusers pipeline saves it, or {DIGITS}"
    )


def scheduled(directory: Path) -> dict[str, Any]:
    """What scheduler_config.json says."""
    if not (file := directory / SCHEDULER / SCHEDULED).is_file():
        raise ValueError(f"{directory} has no {SCHEDULER}/{SCHEDULED}, which says how noise is added: put it there")
    return _sensible(file, _OF_SCHEDULERS)


def check_weights(directory: Path) -> None:
    """Refuse a directory without weights, or with a file of them that is cut off; reads no more than their headers."""
    place, _ = described(directory)
    files = list((directory / place).glob(f"{WEIGHTS}*"))
    if not files:
        raise ValueError(
            f"{directory} has configurations and no weights ({place}/{WEIGHTS}.safetensors): policy.fresh=true makes them anew"
        )
    from safetensors import SafetensorError, safe_open

    for file in files:
        if file.suffix == ".safetensors":
            try:
                safe_open(file, "pt")
            except SafetensorError as error:
                why = " ".join(str(error).split())
                raise ValueError(
                    f"{file} is cut off or damaged ({why}): copy it once more, from where it came"
                ) from error


def not_diffused(path: str) -> None:
    """Refuse a directory as diffusers saves it where a model of text is wanted, with a recipe that trains such a model."""
    try:
        place, said = described(Path(path))[0], scheduled(Path(path))
    except (OSError, ValueError):  # it is none, or damaged
        return
    recipe = "flow_grpo" if said.get("_class_name") == FLOW else "ddpo"
    raise ValueError(
        f"{path} is a flow or diffusion model ({place}/ and {SCHEDULER}/), which needs a recipe of its family: gimbal train {recipe} "
        f"policy.model={path}"
    )


def _sensible(file: Path, limits: Mapping[str, tuple[Callable[[Any], bool], str]]) -> dict[str, Any]:
    """The settings in a file of diffusers; ValueError for one that nothing could be made of."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be loaded: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"{file} cannot be loaded: it holds no settings by name")
    for name, (holds, wanted) in limits.items():
        if said.get(name) is not None and not holds(said[name]):
            raise ValueError(f"{file} has {name}={said[name]!r}; it must be {wanted}")
    return said


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _size(value: Any) -> bool:
    return _count(value) or (isinstance(value, list) and len(value) == 2 and all(map(_count, value)))


_WHOLE, _ABOVE = (_count, "a whole number, 1 or more"), (_positive, "a number above 0")
_OF_NETWORKS = {
    "sample_size": (_size, "a whole number, 1 or more, or two of them"),
    **dict.fromkeys(("in_channels", "out_channels", "num_layers", "layers_per_block", "patch_size"), _WHOLE),
    **dict.fromkeys(
        ("num_attention_heads", "attention_head_dim", "norm_num_groups", CLASSES, "num_class_embeds"), _WHOLE
    ),
}
_OF_SCHEDULERS = {
    "num_train_timesteps": _WHOLE,
    **dict.fromkeys(("shift", "clip_sample_range"), _ABOVE),
    **dict.fromkeys(
        ("beta_start", "beta_end"), (lambda value: _positive(value) and value < 1, "a number between 0 and 1")
    ),
}


@contextmanager
def quiet() -> Iterator[None]:
    """diffusers says nothing by itself meanwhile: what is wrong is said in our own words."""
    logging = library().utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def classes(config: Mapping[str, Any]) -> int:
    """How many classes a network of this configuration was trained on."""
    return (config[CLASSES] if CLASSES in config else config.get("num_class_embeds")) or 0


def read(path: str, fresh: int | None) -> LoadedParts:
    """The parts in a directory; ``fresh``: a seed to draw weights by, where only configurations are there or wanted."""
    directory = Path(path)
    place, config = described(directory)
    said = scheduled(directory)
    if fresh is None:
        check_weights(directory)
    diffusers = library()
    name = str(config.get("_class_name"))
    if name not in dir(diffusers):
        raise ValueError(f"{directory}/{place}/config.json is of {name!r}, which this diffusers does not have")
    kind = getattr(diffusers, name)
    inputs = inspect.signature(kind.forward).parameters
    needed = {n for n, p in inputs.items() if n != "self" and p.default is inspect.Parameter.empty}
    if not needed <= INPUTS or not {"hidden_states", "sample"} & inputs.keys() or "timestep" not in inputs:
        raise ValueError(
            f"{name} is called with {', '.join(sorted(needed))}; gimbal drives networks of an image, a time and a class "
            "(DiTTransformer2DModel, UNet2DModel)"
        )
    try:
        if fresh is None:
            with quiet():
                network, found = kind.from_pretrained(
                    directory / place, low_cpu_mem_usage=False, output_loading_info=True
                )
            if wrong := [*found["missing_keys"], *found["unexpected_keys"], *map(str, found["mismatched_keys"])]:
                raise ValueError(f"weights and config.json do not match: {some(wrong)}")
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(fresh)
                network = kind.from_config(config)
        scheduler_name = str(said.get("_class_name"))
        if scheduler_name not in (FLOW, DDIM, DDPM):
            raise ValueError(f"its scheduler is {scheduler_name}; gimbal drives {FLOW}, {DDIM} and {DDPM}")
        process = Process(getattr(diffusers, scheduler_name).from_config(said))
    except Exception as error:
        # For missing, malformed and truncated files diffusers raises whatever its parsing met.
        if out_of_memory(error):
            raise
        raise ValueError(f"{path} cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    if broken := [key for key, x in network.state_dict().items() if not bool(torch.isfinite(x).all())]:
        raise ValueError(f"the weights in {path} are not all finite numbers: {some(broken)}")
    return LoadedParts(network=network.eval(), process=process, place=place)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the input of a network says besides the noisy sample, in channels after its own.

    ``history``: a picture, and a channel of how much of it is known: the block before, and ones; all 0 where there is none; then
    ``jumps``: how far a step goes.
    """

    channels: int
    history: bool = False
    jumps: bool = False

    @property
    def read(self) -> int:
        return self.channels + self.history * (self.channels + 1) + self.jumps


def told(config: Mapping[str, Any]) -> Told:
    """By how many more channels it reads than it returns; of a network that learned variances it returns more than it reads."""
    read, returned = config.get("in_channels", 0), config.get("out_channels")
    if returned is None or returned >= read:
        return Told(channels=read)
    plain = Told(channels=returned)
    ways = [replace(plain, history=history, jumps=jumps) for history in (False, True) for jumps in (False, True)]
    return next((way for way in ways if way.read == read), plain)


def telling(network: Any, *, history: bool, jumps: bool) -> Any:
    """The same network with these channels too, whose weights are 0."""
    now, config = told(network.config), network.config
    if config.get("out_channels") not in (None, now.channels) or now.read != config.in_channels:
        name = "jumps" if jumps else "history"
        raise ValueError(
            f"policy.{name}=true takes a network that returns as many channels as it reads, and this one reads {config.in_channels} "
            f"and returns {config.out_channels}: leave it out"
        )
    then = replace(now, history=now.history or history, jumps=now.jumps or jumps)
    wide = type(network).from_config({**config, "in_channels": then.read, "out_channels": then.channels})
    kept = [*range(now.read - now.jumps), *([then.read - 1] if now.jumps else [])]
    held = network.state_dict()
    for name, x in wide.state_dict().items():
        if held[name].shape == x.shape:
            x.copy_(held[name])
        else:
            x.zero_()
            x[:, kept] = held[name]
    return wide.eval()


def write(network: Any, parts: LoadedParts, directory: Path, origin: Path) -> None:
    """The layout that was read, and the pipeline's index with it where there was one."""
    network.save_pretrained(directory / parts.place)
    # diffusers adds the path that the weights came from: a resumed run would save other bytes, and whoever uploads them their paths.
    file = directory / parts.place / "config.json"
    said = {
        name: value for name, value in json.loads(file.read_text(encoding="utf-8")).items() if name != "_name_or_path"
    }
    file.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    parts.process.scheduler.save_pretrained(directory / SCHEDULER)
    if (origin / INDEX).is_file() and origin.resolve() != directory.resolve():
        shutil.copyfile(origin / INDEX, directory / INDEX)
