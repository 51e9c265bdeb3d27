"""Generation and rewards as Ray actors. The one file that imports ray, and it does so inside the functions that need it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.runtime.base import AbstractRuntimeSpec, Host, Wanted
from gimbal.runtime.fleet import AbstractBackend, Died
from gimbal.runtime.members import Judge, Sampler
from gimbal.runtime.pool import PoolEngine, PoolScorer
from gimbal.runtime.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Ray(AbstractRuntimeSpec):
    """Generation on ``workers`` Ray actors and rewards on ``scorers`` others, while the learner trains in this process.

    ``address`` is that of a cluster ("auto": the one this machine belongs to); "" takes RAY_ADDRESS, or else starts Ray here.
    ``cpus`` and ``gpus`` are what one worker asks of it; a worker computes in as many threads as it has cpus.
    ``patience``: seconds after which a call of a worker or a reward worker counts as hung. Its process is ended and replaced, and
    what it held is done again elsewhere.
    """

    workers: int = 2
    scorers: int = 1
    cpus: float = 1.0
    gpus: float = 0.0
    address: str = ""
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.workers < 1 or self.scorers < 1:
            raise ValueError(
                f"runtime.workers is {self.workers} and runtime.scorers {self.scorers}; both are at least 1"
            )
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError(f"runtime.cpus is {self.cpus} and runtime.gpus {self.gpus}; both are at least 0")
        if self.patience <= 0:
            raise ValueError(f"runtime.patience is {self.patience}; it is a number of seconds above 0")

    @property
    def threads(self) -> int:
        """In which a worker computes."""
        return max(1, int(self.cpus))

    def open(self, wanted: Wanted) -> Host:
        import ray

        ours = not ray.is_initialized()
        if ours:
            ray.init(
                address=self.address or None, include_dashboard=None, log_to_driver=False, logging_level=logging.ERROR
            )
        _by_value()
        cpus, gpus = ray.cluster_resources().get("CPU", 0.0), ray.cluster_resources().get("GPU", 0.0)
        if self.workers * self.cpus > cpus or self.workers * self.gpus > gpus:
            wanted.note(
                f"{self.workers} workers want {self.workers * self.cpus:g} CPUs and {self.workers * self.gpus:g} GPUs, and Ray has "
                f"{cpus:g} and {gpus:g} at present; some will wait"
            )
        where = next(wanted.policy.parameters()).device
        shared = ray.put(wanted.policy.to("cpu"))
        wanted.policy.to(where)
        samplers = RayBackend(Sampler, (shared, wanted.engine, self.threads), cpus=self.cpus, gpus=self.gpus)
        judges = RayBackend(Judge, (list(wanted.rewards),), cpus=0.0, gpus=0.0)
        schedule = Schedule()
        scorer = PoolScorer(
            judges, schedule, scorers=self.scorers, patience=self.patience, in_order=wanted.in_order, note=wanted.note
        )

        def close() -> None:
            for pool in opened:
                pool.close()
            if ours:
                ray.shutdown()

        opened: list[PoolEngine | PoolScorer] = [scorer]
        try:
            engine = PoolEngine(samplers, schedule, workers=self.workers, patience=self.patience, note=wanted.note)
        except BaseException:
            close()
            raise
        opened.append(engine)
        return Host(engine=engine, scorer=scorer, close=close, metrics=engine.metrics, schedule=schedule.take)


class RayBackend(AbstractBackend):
    """Members are actors of one class. One caller's calls on an actor are executed in order, ``aside`` apart."""

    def __init__(self, kind: type, arguments: Sequence[Any], *, cpus: float, gpus: float) -> None:
        import ray

        variables = {
            "OMP_NUM_THREADS": str(max(1, int(cpus))),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": _path(),
        }
        # One thread for everything, in order, and one beside it that says what the first is in.
        remote: Any = ray.remote  # its stubs know no concurrency groups
        self.actor = remote(concurrency_groups={"aside": 1})(kind).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_concurrency=1, runtime_env={"env_vars": variables}
        )
        self.arguments = arguments

    def spawn(self) -> Any:
        return self.actor.remote(*self.arguments)

    def call(self, handle: Any, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(handle, method).remote(*arguments)

    def aside(self, handle: Any) -> Any:
        return handle.doing.options(concurrency_group="aside").remote()

    def put(self, value: Any) -> Any:
        import ray

        return ray.put(value)

    def wait(self, references: Sequence[Any], seconds: float) -> Sequence[Any]:
        import ray

        ready, rest = ray.wait(list(references), num_returns=1, timeout=seconds)
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return ready

    def get(self, reference: Any) -> Any:
        import ray.exceptions

        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, Exception) else error from None
        except ray.exceptions.RayError as error:
            raise Died(" ".join(str(error).split())[:200]) from None

    def kill(self, handle: Any) -> None:
        import ray

        ray.kill(handle, no_restart=True)


def _path() -> str:
    """Where this process finds modules beyond what is installed: its members shall find them too."""
    installed = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if not entry.startswith(installed))


def _by_value() -> None:
    """Modules loaded from a path have that path as name, under which no other process finds them: they travel whole."""
    import ray.cloudpickle

    for name, module in list(sys.modules.items()):
        if os.path.isabs(name):
            ray.cloudpickle.register_pickle_by_value(module)
