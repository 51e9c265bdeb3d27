"""Streams of frames under deadlines on a virtual clock: which frames a denoising server should batch next.

A frame of a live stream takes ``passes`` forward passes of the network, one denoising step each, and is worth nothing after its
deadline. Frames at different noise levels share a pass, as in ``engines/denoising.py``, which takes L(B) = step_s + B frame_s
seconds for B frames: a larger batch brings more frames a second, and every frame of it later. The batching rules here are pure; the
rest is the clock.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A frame under way: when it was asked for, when it is due, and how many passes it still needs."""

    asked: float
    due: float
    left: int

    def patience(self, now: float) -> float:
        """Seconds that each of its passes may take if it is to be in time."""
        return (self.due - now) / self.left


@dataclass(frozen=True, kw_only=True)
class PassTime:
    """Seconds of a forward pass over B frames: L(B) = step_s + B frame_s."""

    step_s: float = 0.004
    frame_s: float = 0.001

    def __post_init__(self) -> None:
        if self.step_s < 0 or self.frame_s <= 0:
            raise ValueError(f"{self}: step_s must be 0 or above, and frame_s above 0")

    def __call__(self, frames: int) -> float:
        return self.step_s + frames * self.frame_s


class AbstractBatching(ABC):
    """Which frames the next pass takes."""

    @abstractmethod
    def __call__(self, waiting: Sequence[Frame], now: float, seconds: PassTime) -> list[int]:
        """Places in ``waiting``, which is in the order of asking. [] only if none is worth a pass."""


@dataclass(frozen=True, kw_only=True)
class FirstCome(AbstractBatching):
    """The ``most`` frames that were asked for first. ``hopeful``: only frames that would still be in time if all their passes were of
    such a batch, left_i L(most) <= due_i - now.

    - ``most`` 1: one frame after the other.
    - infinite deadlines: ``hopeful`` changes nothing.
    """

    most: int = 8
    hopeful: bool = False

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"FirstCome.most is {self.most}; it must be at least 1")

    def __call__(self, waiting: Sequence[Frame], now: float, seconds: PassTime) -> list[int]:
        least = seconds(min(self.most, len(waiting))) if self.hopeful else 0.0
        return [i for i, frame in enumerate(waiting) if frame.patience(now) >= least][: self.most]


@dataclass(frozen=True, kw_only=True)
class DeadlineBatch(AbstractBatching):
    """The largest batch that its own frames have the time for (after StreamDiffusionV2, arXiv:2511.07399).

    A frame has the patience p_i = (due_i - now) / left_i for each pass that it still needs.
    B* = max {B : safety p_i >= L(B) for at least B of the frames}

    Of the frames with that much patience the B* least patient go. The others wait, or are given up: one frame in a hurry does not make
    the batch small for all, which would cost more frames than it saves. If nothing keeps the margin, the most patient frame goes
    alone if it can still be in time.

    - infinite deadlines: all frames, the batch of the highest throughput.
    - equal patience p: the largest B with L(B) <= safety p, of all that wait.
    - a frame that cannot be in time even alone: it takes no pass from others.

    Defaults: safety 0.9 (ours; the work gives no figure). The work chooses one batch size for a deadline before it serves; choosing it
    anew before each pass, from the frames that wait, is ours.
    """

    safety: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.safety <= 1:
            raise ValueError(f"DeadlineBatch.safety is {self.safety}; it must be a share above 0, at most 1")

    def __call__(self, waiting: Sequence[Frame], now: float, seconds: PassTime) -> list[int]:
        patience = [frame.patience(now) for frame in waiting]
        order = sorted(range(len(waiting)), key=lambda i: -patience[i])
        fits = sum(self.safety * patience[i] >= seconds(count) for count, i in enumerate(order, start=1))
        if not fits:
            return [i for i in order[:1] if patience[i] >= seconds(1)]
        able = [i for i in order if self.safety * patience[i] >= seconds(fits)]
        return able[-fits:]


@dataclass(frozen=True, kw_only=True)
class LiveStream:
    """A viewer who asks for a frame every ``period_s``, each due ``deadline_s`` later, in bursts: on for ``on_s`` and off for
    ``off_s`` seconds in the mean, both exponential. ``off_s`` 0 is a steady stream.
    """

    period_s: float = 0.1
    deadline_s: float = 0.2
    on_s: float = 2.0
    off_s: float = 2.0

    def __post_init__(self) -> None:
        if min(self.period_s, self.deadline_s, self.on_s) <= 0 or self.off_s < 0:
            raise ValueError(f"{self}: seconds must be above 0, and off_s 0 or above")

    def asks(self, seconds: float, rng: random.Random) -> list[tuple[float, float]]:
        """(asked, due) of its frames within so many seconds."""
        found, at = list[tuple[float, float]](), rng.random() * (self.on_s + self.off_s)
        while at < seconds:
            end = min(seconds, at + (rng.expovariate(1 / self.on_s) if self.off_s else math.inf))
            while at < end:
                found.append((at, at + self.deadline_s))
                at += self.period_s
            at += rng.expovariate(1 / self.off_s) if self.off_s else 0.0
        return found


@dataclass(frozen=True, kw_only=True)
class Served:
    """What came of the frames: ``in_time``, the share of all that were asked for; ``frames_per_s``, those finished in time by second;
    ``wasted``, the share of the passes over frames that were not finished in time; ``batch``, frames in the mean pass; ``busy``, the
    share of the time that the server computes.
    """

    asked: int
    in_time: float
    frames_per_s: float
    wasted: float
    batch: float
    busy: float


def serve(
    streams: Sequence[LiveStream],
    batching: AbstractBatching,
    *,
    passes: int = 4,
    seconds: float = 60.0,
    pass_time: PassTime = PassTime(),
    seed: int = 0,
) -> Served:
    """One server and these streams for so many seconds; the same for the same arguments, and the same frames for every ``batching``.

    Frames past their deadline are thrown away before the next pass, whatever the rule.
    """
    if not streams or passes < 1 or seconds <= 0:
        raise ValueError(
            f"{len(streams)} streams, passes={passes}, seconds={seconds}: all must be above 0 for anything to be served"
        )
    asks = [ask for n, stream in enumerate(streams) for ask in stream.asks(seconds, random.Random(f"{seed}/{n}"))]
    coming = [Frame(asked=asked, due=due, left=passes) for asked, due in sorted(asks)]
    waiting: list[Frame] = []
    now, taken, busy, rounds, done, useful, next_one = 0.0, 0, 0.0, 0, 0, 0, 0
    while next_one < len(coming) or waiting:
        while next_one < len(coming) and coming[next_one].asked <= now:
            waiting.append(coming[next_one])
            next_one += 1
        waiting = [frame for frame in waiting if frame.due > now]
        chosen = batching(waiting, now, pass_time) if waiting else []
        if not chosen:  # nothing is worth a pass until another frame is asked for
            if next_one == len(coming):
                break
            now = max(now, coming[next_one].asked)
            continue
        spent = pass_time(len(chosen))
        now, busy, rounds, taken = now + spent, busy + spent, rounds + 1, taken + len(chosen)
        for i in chosen:
            waiting[i] = replace(waiting[i], left=waiting[i].left - 1)
        ended = sum(frame.left == 0 and frame.due >= now for frame in waiting)
        done, useful = done + ended, useful + ended * passes
        waiting = [frame for frame in waiting if frame.left]
    return Served(
        asked=len(coming),
        in_time=done / max(1, len(coming)),
        frames_per_s=done / seconds,
        wasted=1 - useful / max(1, taken),
        batch=taken / max(1, rounds),
        busy=busy / max(now, seconds),
    )
