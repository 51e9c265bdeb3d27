"""Generation and rewards as Ray actors. The one file that imports ray, and it does so inside the functions that need it."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.engines.base import Unserved
from gimbal.runtime.base import AbstractRuntimeSpec, Host, Wanted
from gimbal.runtime.fleet import AbstractBackend, Died
from gimbal.runtime.members import Judge, Sampler
from gimbal.runtime.pool import PoolEngine, PoolScorer
from gimbal.runtime.schedule import Schedule

ROOM_SECONDS = 60.0  # for room in a full object store
ROOM_PAUSE = 0.1  # seconds between two looks


@dataclass(frozen=True, kw_only=True)
class Ray(AbstractRuntimeSpec):
    """Generates on ``workers`` Ray actors and scores on ``scorers`` others, while the learner trains in this process.

    ``address`` is a cluster's address ("auto": the one this machine belongs to); "" uses RAY_ADDRESS, or else starts Ray here.
    ``cpus`` and ``gpus`` are what one worker reserves; a worker uses as many threads as it has cpus.
    ``patience``: seconds after which a call to a worker or reward worker counts as hung. Its process is killed and replaced, and
    its work is repeated elsewhere.
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
                f"runtime.workers is {self.workers} and runtime.scorers {self.scorers}; both must be at least 1"
            )
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError(f"runtime.cpus is {self.cpus} and runtime.gpus {self.gpus}; both must be at least 0")
        if self.patience <= 0:
            raise ValueError(f"runtime.patience is {self.patience}; it must be a number of seconds above 0")

    @property
    def threads(self) -> int:
        """In which a worker computes."""
        return max(1, int(self.cpus))

    def open(self, wanted: Wanted) -> Host:
        import ray

        ours = not ray.is_initialized()
        if ours:
            # Left to itself Ray would join whatever another run on this machine has started.
            address = self.address or os.environ.get("RAY_ADDRESS", "local")
            ray.init(address=address, include_dashboard=None, log_to_driver=False, logging_level=logging.ERROR)
        _by_value()
        cpus, gpus = ray.cluster_resources().get("CPU", 0.0), ray.cluster_resources().get("GPU", 0.0)
        if self.workers * self.cpus > cpus or self.workers * self.gpus > gpus:
            wanted.note(
                f"{self.workers} workers need {self.workers * self.cpus:g} CPUs and {self.workers * self.gpus:g} GPUs, but Ray has "
                f"{cpus:g} and {gpus:g} now; some will wait"
            )
        where = next(wanted.policy.parameters()).device
        shared = _stored(lambda: ray.put(wanted.policy.to("cpu")))
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
            engine = PoolEngine(
                samplers,
                schedule,
                workers=self.workers,
                patience=self.patience,
                note=wanted.note,
                together=wanted.engine.whole,
            )
        except BaseException:
            close()
            raise
        opened.append(engine)
        nodes = Nodes()

        def metrics() -> Mapping[str, float]:
            for sentence in nodes.lost():
                wanted.note(sentence)
            return engine.metrics()

        return Host(engine=engine, scorer=scorer, close=close, metrics=metrics, schedule=schedule.take)


class Nodes:
    """The machines of the cluster that have been up since the run began."""

    def __init__(self) -> None:
        self.up: dict[str, str] = {}  # id: address
        self.lost()

    def lost(self) -> list[str]:
        """A sentence for each that Ray has given up since the last call."""
        import ray

        found: list[str] = []
        for node in ray.nodes():
            if node["Alive"]:
                self.up[node["NodeID"]] = node["NodeManagerAddress"]
            elif address := self.up.pop(node["NodeID"], ""):
                found.append(
                    f"node {node['NodeID'][:8]} ({address}) of the Ray cluster is lost; its work is repeated on other nodes as far as "
                    "they have room, and the run continues with those that are up"
                )
        return found


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
        return _stored(lambda: getattr(handle, method).remote(*arguments))

    def aside(self, handle: Any) -> Any:
        return handle.doing.options(concurrency_group="aside").remote()

    def put(self, value: Any) -> Any:
        import ray

        return _stored(lambda: ray.put(value))

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
            if isinstance(cause, _full()):
                raise Died("Ray's object store had no room for its answer") from None
            raise cause if isinstance(cause, Exception) else error from None
        except ray.exceptions.RayError as error:
            raise Died(" ".join(str(error).split())[:200]) from None

    def kill(self, handle: Any) -> None:
        import ray

        ray.kill(handle, no_restart=True)


def _full() -> tuple[type[Exception], ...]:
    """What Ray raises where the object store is full, and so is the disk that it would spill to."""
    import ray.exceptions

    return ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError


def _stored(put: Callable[[], Any]) -> Any:
    """What ``put`` returns once there is room; meanwhile members load what they were sent and so make some. Raises Unserved."""
    end = time.monotonic() + ROOM_SECONDS
    while True:
        try:
            return put()
        except _full():
            if time.monotonic() >= end:
                raise Unserved(
                    f"Ray's object store has been full for {ROOM_SECONDS:.0f} s, and so is the disk that it spills to. `ray memory` "
                    "shows what fills it; give Ray a larger --object-store-memory or free disk space, then continue with --resume"
                ) from None
            time.sleep(ROOM_PAUSE)


def _path() -> str:
    """Where this process finds modules beyond what is installed: its members should find them too."""
    installed = (sys.prefix, sys.base_prefix)
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if not entry.startswith(installed))


def _by_value() -> None:
    """Modules loaded from a path have that path as name, under which no other process finds them: they travel whole."""
    import ray.cloudpickle

    for name, module in list(sys.modules.items()):
        if os.path.isabs(name):
            ray.cloudpickle.register_pickle_by_value(module)
