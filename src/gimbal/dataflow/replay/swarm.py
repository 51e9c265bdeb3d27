"""Several runs share what they drew, through files."""

from __future__ import annotations

import io
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gimbal import durable
from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge, replayed, replaying
from gimbal.ops import philox
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Episode, Group, Rollout, Task
from gimbal.rewards.base import AbstractReward

RECORDS: list[Any] = [Episode, Group, Rollout, Task, Sampling, Tokens]  # nothing else may come out of a peer's file
PAUSE = 0.2  # seconds between two looks for a file


@dataclass(frozen=True, kw_only=True)
class Swarm(AbstractStoreSpec):
    """A run trains on ``taken`` groups of its peers beside its own, and shows them ``shared`` of these (SAPO, arXiv:2509.08721).

    Each run of a swarm has a ``name`` and goes in rounds, a learner step each. In round v it writes its first ``shared`` groups to
    ``directory``/NAME/, and reads those that each of ``peers`` wrote in the rounds v - lag - window + 1 to v - lag, waiting up to
    ``patience`` seconds for the last of them. A group of a peer is judged anew by the run's own rewards, whatever it says it scored;
    one that is not whole, or whose scores are all equal, is left out. Of the others ``taken`` are drawn, each as likely as any other,
    of no peer more than its share rounded up. Advantages are taken within a group, so those of two runs are never pooled.

    Peers share a tokenizer and may differ in all else. A decision of a peer keeps its log-probability and its version, which counts
    that peer's rounds: its age is by how many rounds the peer was behind when it drew it. What a peer says the answer to a task is, is
    believed. The same files give the same run; a peer that is absent after ``patience`` is counted and left out, and such a run
    cannot be repeated bit for bit. Files older than ``keep`` rounds are removed.

    - ``taken`` = 0, no peers, or no ``directory``: isolated training.
    - peers of equal weights: a larger batch.

    Published: 8 nodes, 8 rollouts a question, mixes of 6/2, 4/4 and 2/6 own and foreign groups, and a ratio that takes what is foreign
    for the run's own. Ours: weights by the true log-probabilities, which a run must have; rounds, ``lag`` and the quota.

    Confidence: partial.
    """

    directory: str = ""
    name: str = "a"
    peers: tuple[str, ...] = ()
    taken: int = 8
    shared: int = 8
    lag: int = 1
    window: int = 1
    keep: int = 128
    patience: float = 600.0

    def __post_init__(self) -> None:
        if min(self.taken, self.shared, self.lag) < 0 or self.window < 1 or not self.patience >= 0:
            raise ValueError(
                f"Swarm has taken={self.taken}, shared={self.shared}, lag={self.lag}, window={self.window} and "
                f"patience={self.patience}; the window is at least 1 round, the others 0 or above"
            )
        if not self.name or self.name in self.peers or any("/" in name for name in (self.name, *self.peers)):
            raise ValueError(
                f"Swarm is named {self.name!r} and its peers {list(self.peers)}; each has a name of its own, that of a directory"
            )

    def most_age(self, max_staleness: int) -> int:
        return max_staleness + (self.lag + self.window - 1 if self.reads else 0)

    @property
    def reads(self) -> bool:
        return bool(self.directory and self.peers and self.taken)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not self.reads:
            yield Advice(
                "Swarm has no directory, no peers or takes nothing, so this run learns from its own rollouts alone"
            )
            return
        yield from replaying(self, whole)
        if asking := [r.name for r in whole.run.rewards if type(r).follow_ups is not AbstractReward.follow_ups]:
            yield Refusal(
                f"Swarm judges the groups of peers anew, and the reward {asking[0]} asks the policy about each: leave it "
                "out, or store=Once()"
            )
        if self.keep < (least := 2 * vars(whole.run)["checkpoint_every"] + self.lag + self.window):
            yield Refusal(
                f"Swarm removes files after {self.keep} rounds, and a run that continues from a checkpoint may read older ones: "
                f"store.keep={least}"
            )

    def start(self, seed: int) -> SwarmStore:
        return SwarmStore(self, seed)


class SwarmStore(AbstractStore):
    """Its files are the store; what it remembers are counts."""

    def __init__(
        self,
        spec: Swarm,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.spec, self.seed, self.clock, self.sleep = spec, seed, clock, sleep
        self.counts = Counter[str]()
        self.pooled = 0

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        spec = self.spec
        if not spec.directory:
            return list(groups)
        self._publish(groups[: spec.shared], version)
        size = max((len(group.episodes) for group in groups), default=0)
        pool = [found for peer in spec.peers for found in self._of(peer, version, size, judge)] if spec.reads else []
        self.pooled = len(pool)
        order = philox("swarm", self.seed, version).permutation(len(pool)).tolist()
        quota, taken = -(-spec.taken // max(1, len(spec.peers))), list[Group]()
        came = Counter[str]()
        for peer, group in (pool[place] for place in order):
            if len(taken) < spec.taken and came[peer] < quota:
                came[peer] += 1
                # A number of its own: that of the peer's group is also one of this run's.
                taken.append(replace(group, index=-1 - len(taken)))
        self.counts["used"] += len(taken)
        return [*groups, *taken]

    def _publish(self, groups: Sequence[Group], version: int) -> None:
        own = Path(self.spec.directory) / self.spec.name
        own.mkdir(parents=True, exist_ok=True)
        drawn = [group for group in groups if not any(e.origin for e in group.episodes)]
        durable.written(_file(own, version), lambda partial: torch.save(drawn, partial))
        if (old := version - self.spec.keep) >= 0:
            _file(own, old).unlink(missing_ok=True)

    def _of(self, peer: str, version: int, size: int, judge: Judge) -> Iterator[tuple[str, Group]]:
        """What can be learned from in the rounds of a peer that are read now."""
        last = version - self.spec.lag
        for round_ in range(max(0, last - self.spec.window + 1), last + 1):
            for group in self._read(_file(Path(self.spec.directory) / peer, round_), wait=round_ == last):
                fresh = _unjudged(group, peer, size, round_)
                verdict = None if fresh is None else judge(fresh)
                if not isinstance(verdict, Group) or len(verdict.episodes) < size:
                    self.counts["malformed"] += 1
                elif float(verdict.score_G.max() - verdict.score_G.min()) == 0:
                    self.counts["all_equal"] += 1
                else:
                    yield peer, verdict

    def _read(self, file: Path, *, wait: bool) -> list[Any]:
        began = self.clock()
        while not file.exists():
            if not wait or self.clock() - began >= self.spec.patience:
                self.counts["absent"] += 1
                return []
            self.sleep(PAUSE)
        try:
            with torch.serialization.safe_globals(RECORDS):
                found = torch.load(io.BytesIO(file.read_bytes()), weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
            # A peer may write anything, and nothing of it may end this run.
            found = None
        if not isinstance(found, list):
            self.counts["malformed"] += 1
            return []
        return found

    def metrics(self) -> dict[str, float]:
        names = ("used", "absent", "malformed", "all_equal")
        return {"replay/held": float(self.pooled)} | {f"replay/{name}": float(self.counts[name]) for name in names}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "pooled": self.pooled}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts, self.pooled = Counter(state["counts"]), state["pooled"]


def _file(directory: Path, version: int) -> Path:
    return directory / f"round_{version:06d}.pt"


def _unjudged(group: Any, peer: str, size: int, latest: int) -> Group | None:
    """A group of a peer without the scores that came with it; None where it is not what it should be."""
    try:
        if not isinstance(group, Group) or len(group.episodes) != size or not isinstance(group.task, Task):
            return None
        if len({episode.sample for episode in group.episodes}) < size:
            return None
        for row in group.rows:
            row.validate()
            if (
                not isinstance(row.decisions, Tokens)
                or row.decisions.shape != (1, row.length)
                or row.version_S.max() > latest
            ):
                return None
        plain = [
            episode.map(lambda row: replace(row, score=None, scores={}, task=group.task)) for episode in group.episodes
        ]
        return replace(group, episodes=tuple(replayed(e, e.sample, peer) for e in plain), replies={})
    except (AssertionError, AttributeError, TypeError, ValueError, IndexError, RuntimeError):
        return None  # fields of other kinds than they should be
