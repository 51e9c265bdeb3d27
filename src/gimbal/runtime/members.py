"""The members of a fleet: a sampler (an engine with its policy) and a judge (the run's rewards)."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gimbal.engines.base import AbstractSampler, Finished, Request
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Receipt
from gimbal.learning.weight_sync.delta import Packet, Receiver
from gimbal.learning.weight_sync.proof import asked
from gimbal.ops.activity import activities, doing
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import score
from gimbal.runtime import device
from gimbal.runtime.base import Scored

Packed = dict[str, tuple[np.ndarray, torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True, kw_only=True)
class Word:
    """What a member says of its weights: the receipt of a load, and the canary's log-probs where they were asked for.

    ``due`` is the version it was sent, ``version`` the one it has.
    """

    due: int
    version: int
    receipt: Receipt | None
    logprob_D: Tensor | None


def packed(state: Mapping[str, Tensor]) -> Packed:
    """Tensors as bytes that an object store shares between processes without copying them."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return {name: (t.reshape(-1).view(torch.uint8).numpy(), t.dtype, tuple(t.shape)) for name, t in plain.items()}


def unpacked(state: Packed) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # engines copy what they load
        return {n: torch.from_numpy(data).view(dtype).reshape(shape) for n, (data, dtype, shape) in state.items()}


class Sampler:
    """A member of a PoolEngine."""

    def __init__(self, policy: AbstractPolicy, engine: AbstractSampler, threads: int) -> None:
        self.threads = threads
        self.engine = engine.start(policy.to(device.prepare(threads)))
        self.numbers: dict[tuple[int, int], int] = {}  # ticket of each request in the engine
        self.due = -1
        self.receiver = Receiver()  # what packets have led to
        self.canary: Sequence[Rollout] = ()

    def start(self) -> tuple[float, Form | None]:
        return self.engine.tolerance, self.engine.form

    def load(self, version: int, state: Packed) -> Word:
        return self._loaded(version, lambda: unpacked(state))

    def load_packets(self, version: int, *packets: Packet) -> Word:
        """Raises SyncError if the packets do not lead from the current weights to the sent ones."""

        def applied() -> Mapping[str, Tensor]:
            for packet in packets:
                self.receiver.apply(packet)
            return self.receiver.state

        return self._loaded(version, applied)

    def watch(self, canary: Sequence[Rollout]) -> Word:
        """From now on loads are answered with the log-probabilities of these rollouts too, at the versions at which they are asked."""
        self.canary = canary
        return self._word(None)

    def advance(
        self,
        new: Sequence[tuple[int, Request]],
        cancelled: Sequence[tuple[int, int]],
        seconds: float,
        most: float = math.inf,
    ) -> tuple[list[tuple[int, Finished]], float, int]:
        """Draw for so many seconds, or ``most`` steps, but at least one, or until nothing is left.

        Returns what finished, each with its ticket; the seconds and the steps that it took.
        """
        device.prepare(self.threads)  # a flag of the thread, and calls may come on another
        start = time.perf_counter()
        for key in cancelled:
            if self.numbers.pop(key, None) is not None:
                self.engine.cancel(key)
        for number, request in new:
            self.numbers[request.key] = number
            self.engine.submit(request)
        finished: list[tuple[int, Finished]] = []
        steps, over = 0, False
        while self.engine.in_flight and not over:
            with doing("engine step"):
                items = self.engine.step()
            finished += [(self.numbers.pop(item.key), item) for item in items]
            steps += 1
            over = steps >= most or time.perf_counter() - start >= seconds
        return finished, time.perf_counter() - start, steps

    def doing(self) -> str:
        return str(activities()[0]) if activities() else ""

    def _loaded(self, version: int, state: Callable[[], Mapping[str, Tensor]]) -> Word:
        """Load, and read what is held before and after."""
        before = self.engine.reading() if self.due >= 0 else None
        with doing("loading weights"):
            self.engine.load(version, state())
        self.due = version
        after = self.engine.reading()
        return self._word(None if after is None else Receipt(who="", due=version, before=before, after=after))

    def _word(self, receipt: Receipt | None) -> Word:
        wanted = self.canary if receipt is None or asked(self.engine.form, self.due) else ()
        said = [self.engine.score(rollout).cpu() for rollout in wanted]
        logprob_D = torch.cat(said) if said else None
        return Word(due=self.due, version=self.engine.version, receipt=receipt, logprob_D=logprob_D)


class Judge:
    """A member of a PoolScorer."""

    def __init__(self, rewards: Sequence[AbstractReward]) -> None:
        torch.set_num_threads(1)
        self.rewards = [reward.open() for reward in rewards]

    def start(self) -> None:
        return None

    def score(self, group: Group) -> Scored:
        lost: Counter[str] = Counter()
        return Scored(index=group.index, outcome=score(group, self.rewards, lost), lost=lost)

    def doing(self) -> str:
        return str(activities()[0]) if activities() else ""
