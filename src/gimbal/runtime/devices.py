"""Which GPUs the learner and the samplers use: one field of a run, for any engine and runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.engines.native import Native
from gimbal.engines.vllm_server import VLLMServer
from gimbal.learning.ranks import several
from gimbal.runtime.base import Local
from gimbal.runtime.ray import Ray

TORCHRUN = "torchrun --nproc-per-node {} -m gimbal train ..."


@dataclass(frozen=True, kw_only=True)
class Devices(AbstractPart):
    """``learner`` GPUs for the learner, one per process that torchrun starts, and ``gpus`` others for each of ``samplers``
    samplers. Without it (devices=None) both use the first GPU, or the CPU.

    Several samplers are workers of runtime=Ray(), whose ``workers`` and ``gpus`` this sets; several GPUs of one sampler share the model
    by tensor parallelism (engine=VLLMServer()). ``turns``: the sampler shares the learner's GPUs, and its weights and caches leave them
    while the learner trains (max_staleness=0, because no rollout may be unfinished then). The optimizer's state stays on the GPU.
    """

    learner: int = 1
    samplers: int = 1
    gpus: int = 1
    turns: bool = False

    def __post_init__(self) -> None:
        if min(self.learner, self.samplers, self.gpus) < 1:
            raise ValueError(
                f"devices has {self.learner} GPUs for the learner and {self.samplers} samplers of {self.gpus}; each must be at least 1"
            )

    @property
    def wanted(self) -> int:
        """GPUs in all."""
        return max(self.learner, self.gpus) if self.turns else self.learner + self.samplers * self.gpus

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        run: Any = whole.run
        if self.samplers > 1 and not isinstance(run.runtime, Ray):
            yield Refusal(f"devices.samplers={self.samplers} need their own processes: set runtime=Ray()")
        if self.gpus > 1 and not isinstance(run.engine, VLLMServer):
            yield Refusal(
                f"devices.gpus={self.gpus} share one model, but {type(run.engine).__name__} samples on one device: "
                "set engine=VLLMServer()"
            )
        if isinstance(run.engine, VLLMServer) and run.engine.url:
            yield Refusal("the server at engine.url has its own GPUs: drop devices=, or engine.url")
        if isinstance(run.runtime, Local) and not isinstance(run.engine, Native | VLLMServer):
            yield Refusal(
                f"devices= cannot place {type(run.engine).__name__}() in the learner's process: engine=Native(), engine=VLLMServer() "
                "or runtime=Ray()"
            )
        if self.turns and (run.max_staleness > 0 or not isinstance(run.runtime, Local)):
            yield Refusal(
                "devices.turns=true lets learner and sampler work in turns; with max_staleness above 0 or on Ray they work at once: "
                "max_staleness=0 runtime=Local(), or devices.turns=false"
            )
        if self.learner > 1 and os.environ.get("WORLD_SIZE") != str(self.learner):
            found = os.environ["WORLD_SIZE"] if several() else "1"
            yield Refusal(
                f"devices.learner={self.learner} needs one process per GPU, but there are {found}: {TORCHRUN.format(self.learner)}"
            )
        elsewhere = isinstance(run.runtime, Ray) and bool(run.runtime.address or os.environ.get("RAY_ADDRESS"))
        wanted, found = self.learner if elsewhere else self.wanted, torch.cuda.device_count()
        if found < wanted:
            yield Refusal(
                f"devices needs {wanted} GPUs on this machine ({self.learner} for the learner, {self.samplers} x {self.gpus} for "
                f"samplers), but it has {found}: lower them, or drop devices="
            )


def placed(run: Any) -> Any:
    """The run with its engine and runtime on the GPUs that ``devices`` assigns."""
    devices: Devices | None = run.devices
    if devices is None:
        return run
    if isinstance(run.runtime, Ray):  # which shows each worker only its own
        runtime = replace(run.runtime, workers=devices.samplers, gpus=float(devices.gpus))
        return replace(run, runtime=runtime, engine=_engine(run.engine, devices, []))
    first = 0 if devices.turns else devices.learner
    return replace(run, engine=_engine(run.engine, devices, list(range(first, first + devices.gpus))))


def _engine(engine: Any, devices: Devices, numbers: list[int]) -> Any:
    """``numbers``: indices among this process's GPUs; empty leaves the choice to the engine's process."""
    if isinstance(engine, VLLMServer):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [shown.split(",")[n] for n in numbers] if shown else [str(n) for n in numbers]
        return replace(engine, tensor_parallel=devices.gpus, gpus=",".join(names), offload=devices.turns)
    if isinstance(engine, Native) and numbers and not devices.turns:
        return replace(engine, device=f"cuda:{numbers[0]}")
    return engine
