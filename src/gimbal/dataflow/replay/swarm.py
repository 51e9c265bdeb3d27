"""Several runs share what they drew, through files."""

from __future__ import annotations

import json
import os
import shlex
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gimbal import durable
from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge, replaying
from gimbal.dataflow.replay.peers import MOST_GROUPS, Strange, loaded, shown, unjudged
from gimbal.ops import philox
from gimbal.policies.token import TEXT
from gimbal.records import Drop, Group
from gimbal.rewards.base import AbstractReward

OWNER = "run.json"  # in a run's directory: the run that writes there
ROUNDS = "round_*.pt"
REASONS = ("malformed", "overlong", "expired", "unjudged", "all_equal")  # why a group of a peer is left out
COUNTS = ("used", "absent", "changed", *REASONS)
MOST_NAME = 200  # bytes
PAUSE = 0.2  # seconds between two looks for a file


@dataclass(frozen=True, kw_only=True)
class Swarm(AbstractStoreSpec):
    """A run trains on ``taken`` groups of its peers beside its own, and shows them ``shared`` of these (SAPO, arXiv:2509.08721).

    Each run of a swarm has a ``name`` and goes in rounds, a learner step each. In round v it writes its first ``shared`` groups to
    ``directory``/NAME/, and reads those that each of ``peers`` wrote in the rounds v - lag - window + 1 to v - lag, waiting up to
    ``patience`` seconds for the last of them. A group of a peer is judged anew by the run's own rewards, whatever it says it scored,
    and by what its tokens say, whatever text came with them. It is left out, and counted, if it is not whole or not of the run's own
    vocabulary, has images, rows longer than ``sampling.max_length`` or truncated sampling, is older than the run's bound, if a reward
    does not judge all of it, or raises, or if its scores are all equal. Of the others ``taken`` are drawn, each as likely as any other,
    of no peer more than its share rounded up. Advantages are taken within a group, so those of two runs are never pooled.

    Peers are language models that share a tokenizer, and may differ in all else. A decision of a peer keeps its log-probability and its
    version, which counts that peer's rounds: its age is by how many rounds the peer was behind when it drew it. What a peer says the
    answer to a task is, is believed, and so are its log-probabilities (of 0 or below) and its versions (up to that of the file): a peer
    that lies about these is not found out. The same files give the same run; a peer that is absent after ``patience`` is counted and
    left out, and such a run cannot be repeated bit for bit. Files older than ``keep`` rounds are removed.

    A run begins in an empty directory of its own, or goes on in the one that it wrote: rounds of another run there are refused.
    Each file says which run wrote it. Where a peer has begun anew, its earlier run's files are read until the new one has written those
    rounds, and ``replay/changed`` counts how often the run behind a name is another one than before: begin a swarm in a new directory.

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
        names = [self.name, *self.peers]
        if len(set(names)) < len(names) or not all(map(_names, names)):
            raise ValueError(
                f"Swarm is named {self.name!r} and its peers {list(self.peers)}; each has a name of its own, once, and it is that of a "
                "directory: letters, digits, dots and dashes, no blanks, not . or .."
            )

    def sole(self) -> str:
        if not self.directory:
            return ""
        return (
            f"store.directory and store.name are those of one run of a swarm: each would write to {self._own} and be taken for the "
            "same peer. Start them one by one, each with its own store.name, or leave store.directory out"
        )

    @property
    def _own(self) -> Path:
        return Path(self.directory) / self.name

    def most_age(self, max_staleness: int) -> int:
        return max_staleness + (self.lag + self.window - 1 if self.reads else 0)

    @property
    def reads(self) -> bool:
        return bool(self.directory and self.peers and self.taken)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not self.reads:
            yield Advice(
                "Swarm has no directory, no peers or takes nothing, so this run learns from its own rollouts alone",
                always=True,
            )
            return
        if whole.run.policy.family != TEXT:
            yield Refusal(
                f"Swarm shares texts of language models, and {type(whole.run.policy).__name__} is none: store=Once(), or leave "
                "store.directory out"
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


class Owner(NamedTuple):
    """Who writes to a directory of a swarm: the run, and its directory, "" if it has none."""

    run: str
    home: str


class SwarmStore(AbstractStore):
    """Its files are the store; what it remembers are counts, its name for itself and those of its peers."""

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
        self.own = Owner(run=uuid.uuid4().hex, home="")  # no choice of the run hangs on it
        self.runs: dict[str, str] = {}  # of each peer: the run that wrote what was last read of it

    def claim(self, saved: Mapping[str, Any] | None, home: Path | None) -> None:
        if not self.spec.directory:
            return
        own = self.spec._own
        self.own = Owner(run=(saved or {}).get("run", self.own.run), home="" if home is None else str(home.resolve()))
        above = next(path for path in (own, *own.parents) if os.path.lexists(path))
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(
                f"Swarm cannot write to {own}: {above} is no directory that it may write to: store.directory=DIRECTORY"
            )
        if (there := _owner(own)) is None and saved is not None and "run" not in saved:
            return  # of a checkpoint from before directories had owners
        if not self._mine(there) and (there is not None or any(own.glob(ROUNDS))):
            raise self._taken()

    def _mine(self, owner: Owner | None) -> bool:
        """A run that was killed before its first checkpoint begins again, under another name for itself and in the same directory."""
        return owner is not None and (owner.run == self.own.run or "" != owner.home == self.own.home)

    def _taken(self) -> ValueError:
        own = self.spec._own
        return ValueError(
            f"{own} holds rounds of another run, and peers would take them for this one's: give this run a name or a directory of its "
            f"own (store.name=NAME, store.directory=DIRECTORY); if that run is over, you may remove them: rm -r {shlex.quote(str(own))}"
        )

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
        own = self.spec._own
        own.mkdir(parents=True, exist_ok=True)
        self._hold(own)
        drawn = [shown(group) for group in groups if not any(e.origin for e in group.episodes)]
        content = {"run": self.own.run, "round": version, "groups": drawn}
        durable.written(_file(own, version), lambda partial: torch.save(content, partial))
        if (old := version - self.spec.keep) >= 0:
            _file(own, old).unlink(missing_ok=True)

    def _hold(self, own: Path) -> None:
        """Its own mark in its directory. Of two runs that begin there at once one finds the other's."""
        mark, content = own / OWNER, json.dumps(self.own._asdict())
        try:
            with mark.open("x") as file:
                file.write(content)
            durable.sync(mark)
            return
        except FileExistsError:
            there = _owner(own)
        if there is not None and there.run == self.own.run:
            return
        old = list(own.glob(ROUNDS))
        if not self._mine(there) and (there is not None or old):
            raise self._taken()
        for file in old:  # it draws them again; until then nobody should read what it is about to replace
            file.unlink(missing_ok=True)
        durable.write(mark, content)

    def _of(self, peer: str, version: int, size: int, judge: Judge) -> Iterator[tuple[str, Group]]:
        """What can be learned from in the rounds of a peer that are read now."""
        last = version - self.spec.lag
        for round_ in range(max(0, last - self.spec.window + 1), last + 1):
            for group in self._read(peer, round_, wait=round_ == last):
                verdict = _judged(group, peer, size, round_, judge)
                if isinstance(verdict, Group):
                    yield peer, verdict
                else:
                    self.counts[verdict.reason] += 1

    def _read(self, peer: str, round_: int, *, wait: bool) -> list[Any]:
        file, began = _file(Path(self.spec.directory) / peer, round_), self.clock()
        try:
            while not durable.regular(file):
                if not wait or self.clock() - began >= self.spec.patience:
                    self.counts["absent"] += 1
                    return []
                self.sleep(PAUSE)
            run, groups = _content(loaded(file), round_)
            if run == self.own.run:
                raise Strange
        except Exception:
            # A peer may write anything, in any way that torch cannot read, and nothing of it may end this run.
            self.counts["malformed"] += 1
            return []
        self.counts["changed"] += self.runs.get(peer, run) != run
        self.runs[peer] = run
        return groups

    def metrics(self) -> dict[str, float]:
        return {"replay/held": float(self.pooled)} | {f"replay/{name}": float(self.counts[name]) for name in COUNTS}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "pooled": self.pooled, "run": self.own.run, "runs": dict(self.runs)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.counts, self.pooled = Counter(state["counts"]), state["pooled"]
        self.own, self.runs = self.own._replace(run=state["run"]), dict(state["runs"])


def _file(directory: Path, version: int) -> Path:
    return directory / f"round_{version:06d}.pt"


def _names(name: Any) -> bool:
    """Whether it can be that of a directory, on any disk and in any sentence."""
    plain = isinstance(name, str) and name.isprintable() and not any(c.isspace() or c in "/\\" for c in name)
    return plain and name not in ("", ".", "..") and len(name.encode()) <= MOST_NAME


def _owner(own: Path) -> Owner | None:
    """Who writes to a directory, None if nobody says; a half of a mark is none, and anything but a file is refused."""
    if not durable.regular(own / OWNER):  # a pipe would be waited for
        return None
    try:
        said = json.loads((own / OWNER).read_text())
        return Owner(run=str(said["run"]), home=str(said["home"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _content(found: Any, round_: int) -> tuple[str, list[Any]]:
    """The run that wrote a file, and its groups."""
    if not isinstance(found, dict) or found.get("round") != round_ or type(found.get("run")) is not str:
        raise Strange
    if not isinstance(groups := found.get("groups"), list) or len(groups) > MOST_GROUPS:
        raise Strange
    return found["run"], groups


def _judged(group: Any, peer: str, size: int, round_: int, judge: Judge) -> Group | Drop:
    """A group of a peer with the scores of the run's own rewards, or for which of ``REASONS`` it is left out."""
    fresh = unjudged(group, peer, size, round_)
    if fresh is None:
        return Drop("malformed")
    try:
        verdict = judge(fresh)
    except Exception:  # the run's rewards were not made for the tasks of peers, who may say anything of one
        return Drop("unjudged")
    if isinstance(verdict, Drop):
        return verdict if verdict.reason in REASONS else Drop("unjudged")
    score_G = verdict.score_G
    if len(verdict.episodes) < size or not bool(score_G.isfinite().all()):
        return Drop("unjudged")
    return Drop("all_equal") if float(score_G.max() - score_G.min()) == 0 else verdict
