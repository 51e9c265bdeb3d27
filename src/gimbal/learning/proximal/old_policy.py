"""SamplingVersion in its own process, which evaluates groups as they arrive, while the engine samples and the learner trains."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.dataflow.packing import pack
from gimbal.learning.proximal.base import (
    AbstractAnchor,
    Evaluate,
    Forward,
    frozen_copy,
    keys_of,
    refuse_several_processes,
    weight_bytes,
)
from gimbal.learning.proximal.kept_versions import KeptVersions
from gimbal.learning.ranks import SingleProcess, in_micro_batches
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Group, TrainBatch

Answer = TypeVar("Answer")


class OldPolicyLost(ValueError):
    """The process that holds the old weights is gone."""


class OldPolicy(AbstractAnchor):
    """The learner's half. It sends weights to the process after every step and groups while they wait for training; the process works
    in that order.

    Both are sent as pickled bytes. The process ends with this one; it ignores Ctrl-C and a closed terminal, which the run handles.
    """

    def __init__(self, window: int, threads: int, policy: AbstractPolicy) -> None:
        refuse_several_processes()
        self.window, self.versions = window, 1
        self.weight_bytes = weight_bytes(policy)
        # By group: keys, oldest version, answer.
        self.asked: dict[int, tuple[list[tuple[int, int, int]], int, Future[Tensor]]] = {}
        start = (window, threads, pickle.dumps(frozen_copy(policy).cpu()), str(next(policy.parameters()).device))
        self.process = ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=start
        )
        self._tell(os.getpid)  # it starts at once

    def arrived(self, group: Group, forward: Forward) -> None:
        batch = pack([group])
        answer = self._tell(_evaluated, pickle.dumps(batch), forward)
        self.asked[group.index] = (keys_of(batch), group.oldest, answer)

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        result_NS = torch.zeros(batch.shape, device=batch.mask_NS.device)
        for row, key in enumerate(keys_of(batch)):
            if (index := key[0]) not in self.asked:
                raise ValueError(
                    f"the old-policy process does not know group {index}: call learner.arrived(group) for each group before prepare, "
                    "or use SamplingVersion(apart=False)"
                )
            keys, _, answer = self.asked[index]
            logprob_S = self._answer(answer)[keys.index(key)][: batch.shape[1]]
            result_NS[row, : len(logprob_S)] = logprob_S.to(result_NS)
        for index in {key[0] for key in keys_of(batch)}:
            del self.asked[index]
        return result_NS.where(batch.mask_NS, 0)

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        weights = {name: x.detach().cpu() for name, x in policy.state_dict().items()}
        self._tell(_publish, version, pickle.dumps(weights))
        self.versions = min(self.versions + 1, self.window + 1)
        # What is older was dropped as stale: nobody will ask for it.
        self.asked = {index: one for index, one in self.asked.items() if one[1] >= version - self.window}

    def nbytes(self) -> int:
        """Of the versions, and of the policy that they are unpacked into."""
        return (self.versions + 1) * self.weight_bytes

    def state_dict(self) -> dict[str, Any]:
        return pickle.loads(self._answer(self._tell(_state)))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.versions = len(state["kept"])
        self._tell(_restore, pickle.dumps(dict(state)))

    def close(self) -> None:
        self.process.shutdown(cancel_futures=True)

    def _tell(self, function: Callable[..., Answer], *given: Any) -> Future[Answer]:
        try:
            return self.process.submit(function, *given)
        except BrokenProcessPool as error:
            raise OldPolicyLost(LOST) from error

    def _answer(self, future: Future[Answer]) -> Answer:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise OldPolicyLost(LOST) from error


LOST = (
    "the process with the old weights has died (killed, or out of memory), and with it the versions it held: continue from the newest "
    "checkpoint with --resume, or set anchor.apart=false, which keeps them in the learner's process"
)

_live: KeptVersions  # in the process: the versions ...
_newest: AbstractPolicy  # ... and what weights are unpacked into


def _begin(window: int, threads: int, policy: bytes, device: str) -> None:
    global _live, _newest
    for number in (signal.SIGINT, signal.SIGHUP):  # of the terminal, which reach the learner too: it ends this process
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_learner, daemon=True).start()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # as the learner does
    _newest = pickle.loads(policy).to(device)
    _live = KeptVersions(window, _newest)


def _end_with_the_learner() -> None:
    learner = multiprocessing.parent_process()
    assert learner is not None
    learner.join()
    os._exit(0)


def _publish(version: int, weights: bytes) -> None:
    _newest.load_state_dict(pickle.loads(weights))
    _live.publish(_newest, version)


def _evaluated(rows: bytes, forward: Forward) -> Tensor:
    def evaluate(batch: TrainBatch, policy: AbstractPolicy | None = None) -> Tensor:
        return in_micro_batches(SingleProcess(), _newest, batch, forward.tokens, forward.columns_of(policy or _newest))[
            "logprob_NS"
        ]

    device = next(_newest.parameters()).device
    return _live(pickle.loads(rows).to(device), evaluate).cpu()


def _state() -> bytes:
    return pickle.dumps(_live.state_dict())


def _restore(state: bytes) -> None:
    _live.load_state_dict(pickle.loads(state))
