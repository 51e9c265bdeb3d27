"""What a run believes of a file that another run wrote: nothing that it has not looked at."""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gimbal.composition import Chosen
from gimbal.dataflow.replay.base import replayed
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import Sampling, TokenPolicy, Tokens
from gimbal.records import MOST_LENGTH, Drop, Episode, Group, Part, Rollout, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import score

RECORDS: list[Any] = [Episode, Group, Rollout, Task, Sampling, Tokens]  # nothing else may come out of a peer's file
MOST_BYTES = 2**30  # of a file, packed and unpacked
MOST_GROUPS = 1024  # of a round
MOST_ROWS = 256  # of an episode: estimators follow forks from row to row
MOST_TURNS = 100_000
MOST_DEPTH = 50  # of a task's columns
ROUNDING = 1e-4  # nats by which a log-probability may pass 0
LEAST_LOGPROB = -100.0  # of what was drawn: no random number of 64 bits hits e^-100
INTEGERS, REALS, BOOLEANS = (torch.int32, torch.int64), (torch.float32, torch.float64), (torch.bool,)
STOPS = frozenset({"stop", "length", "terminated", "truncated", "paused", "cancelled", "error"})


class Strange(ValueError):
    """Something in a peer's file is not what a run writes there."""


def loaded(file: Path) -> Any:
    """What a file holds, of plain values and ``RECORDS`` alone. Any exception: it is none of a run's.

    A pipe is not waited for, and what is larger than ``MOST_BYTES``, packed or not, is not read.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:
        found = os.fstat(opened.fileno())
        _must(stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES)
        content = opened.read(MOST_BYTES + 1)
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        entries = packed.infolist()
    # As torch writes them: a compressed entry may be a thousand times as large as the file.
    _must(all(entry.compress_type == zipfile.ZIP_STORED for entry in entries))
    _must(len(content) <= MOST_BYTES and sum(entry.file_size for entry in entries) <= MOST_BYTES)
    with torch.serialization.safe_globals(RECORDS):
        return torch.load(io.BytesIO(content), weights_only=True)


def shown(group: Group) -> Group:
    """A group as it is written for peers: without what no other run reads, which may be of kinds that none takes out of a file."""

    def plain(row: Rollout) -> Rollout:
        return replace(row, state_H=None)

    return replace(group, episodes=tuple(replace(e.map(plain), acts=None) for e in group.episodes), replies={})


def unjudged(group: Any, peer: str, size: int, latest: int) -> Group | None:
    """A group of a peer without the scores that came with it; None where it is not what it should be: ``size`` whole episodes with
    distinct numbers, every column of its kind, all versions from 0 to ``latest``, forks that share what they say.

    Every record is made anew from what was looked at: what comes out of a file may lack fields, and no constructor has seen it.
    """
    try:
        _must(type(group) is Group and _integer(group.index) and isinstance(group.episodes, tuple))
        _must(len(group.episodes) == size)
        task = _task(group.task)
        episodes = tuple(_episode(episode, task, latest) for episode in group.episodes)
        _must(len({episode.sample for episode in episodes}) == size)
        _forked(episodes)
        return Group(index=group.index, task=task, episodes=tuple(replayed(e, e.sample, peer) for e in episodes))
    except Exception:  # fields may be missing or of any kind, and nothing of a peer may end this run
        return None


def rescored(
    run: Chosen, policy: AbstractPolicy, rewards: Sequence[AbstractReward], version: int, group: Group
) -> Group | Drop:
    """An ``unjudged`` group as the run's model and rewards see it at this version. The text of a row is what its tokens say, whatever
    text came with them. Dropped as ``expired`` if it is older than the run's store allows, as ``overlong`` with a row of more than
    ``sampling.max_length`` decisions or more than the model's context, as ``malformed`` with a token that the model does not know."""
    assert isinstance(policy, TokenPolicy), type(policy)
    oldest, longest = run.store.most_age(run.max_staleness), run.sampling.max_length
    if oldest is not None and version - group.oldest > oldest:
        return Drop("expired")
    most = min(policy.context, policy.steady or policy.context)
    texts: list[str] = []
    for row in group.rows:
        assert isinstance(row.decisions, Tokens), type(row.decisions)
        ids = row.decisions.ids_NL[0].tolist()
        if row.length > longest or len(ids) > most:
            return Drop("overlong")
        try:
            policy.known(ids + ([] if row.rival_S is None else row.rival_S.tolist()), "a peer's row")
        except ValueError:
            return Drop("malformed")
        texts.append(policy.decode(ids[int(row.decisions.prompt_N[0]) :]))
    said = iter(texts)
    return score(
        replace(group, episodes=tuple(e.map(lambda row: replace(row, text=next(said))) for e in group.episodes)),
        rewards,
    )


def _must(condition: bool) -> None:
    if not condition:
        raise Strange


def _integer(value: Any) -> bool:
    return type(value) is int


def _task(task: Any) -> Task:
    _must(type(task) is Task and _integer(task.seed) and isinstance(task.columns, Mapping) and _plain(task.columns))
    for text in (task.id, task.prompt, task.source, "" if task.answer is None else task.answer):
        # Half of a surrogate pair cannot be written to any file.
        _must(type(text) is str and bool(text.encode() or True))
    columns = dict(task.columns)
    return Task(id=task.id, prompt=task.prompt, answer=task.answer, source=task.source, seed=task.seed, columns=columns)


def _plain(value: Any, depth: int = 0) -> bool:
    """Whether it is what a row of a data set may hold."""
    if depth > MOST_DEPTH:
        return False
    if isinstance(value, Mapping):
        return all(type(key) is str and _plain(own, depth + 1) for key, own in value.items())
    if isinstance(value, list | tuple):
        return all(_plain(own, depth + 1) for own in value)
    return value is None or type(value) in (str, int, float, bool)


def _episode(episode: Any, task: Task, latest: int) -> Episode:
    _must(type(episode) is Episode and isinstance(episode.rows, tuple) and not episode.error)
    _must(0 < len(episode.rows) <= MOST_ROWS)
    made = Episode(rows=tuple(_row(row, task, latest) for row in episode.rows))
    _must(any(bool(row.mask_S.any()) for row in made.rows))
    return made


def _row(row: Any, task: Task, latest: int) -> Rollout:
    _must(type(row) is Rollout and _integer(row.sample) and _integer(row.row) and min(row.sample, row.row) >= 0)
    _must(type(row.text) is str and row.stop in STOPS)
    _must(type(row.role) is str and row.role.isprintable() and len(row.role) <= MOST_ROWS)
    _must(type(row.inclusion) in (int, float) and 0 < row.inclusion <= 1)
    tokens = _tokens(row.decisions)
    length = tokens.shape[1]
    mask_S, behavior_S = _column(row.mask_S, BOOLEANS, length), _column(row.behavior_S, REALS, length).float()
    drawn = behavior_S[mask_S]
    _must(bool((torch.isfinite(drawn) & (drawn >= LEAST_LOGPROB) & (drawn <= ROUNDING)).all()))
    made = Rollout(
        task=task,
        sample=row.sample,
        decisions=tokens,
        behavior_S=behavior_S.nan_to_num(0.0, 0.0, 0.0).clamp(LEAST_LOGPROB, ROUNDING),  # what was not drawn has any
        version_S=_between(row.version_S, length, 0, latest),
        mask_S=mask_S,
        reward_S=_finite(row.reward_S, length),
        stop=row.stop,
        sampling=_sampling(row.sampling),
        text=row.text,
        entropy_S=None if row.entropy_S is None else _finite(row.entropy_S, length),
        rival_S=None if row.rival_S is None else _between(row.rival_S, length, 0, torch.iinfo(torch.int32).max),
        rival_logprob_S=None if row.rival_logprob_S is None else _finite(row.rival_logprob_S, length),
        part_S=None if row.part_S is None else _between(row.part_S, length, min(Part), max(Part)),
        turn_S=None if row.turn_S is None else _between(row.turn_S, length, 0, MOST_TURNS),
        fork=row.fork,
        row=row.row,
        role=row.role,
        inclusion=float(row.inclusion),
    )
    fork = made.fork
    _must(fork is None or (type(fork) is tuple and len(fork) == 2 and all(map(_integer, fork)) and fork[0] >= 0))
    made.validate()
    return made


def _sampling(sampling: Any) -> Sampling:
    _must(type(sampling) is Sampling and _integer(sampling.max_length) and _integer(sampling.top_k))
    _must(
        all(
            type(x) in (int, float) and math.isfinite(x) for x in (sampling.temperature, sampling.top_p, sampling.min_p)
        )
    )
    _must(type(sampling.stop) is tuple and all(type(stop) is str for stop in sampling.stop))
    made = replace(sampling)  # which looks at the numbers
    _must(made.trainable)
    return made


def _tokens(tokens: Any) -> Tokens:
    _must(type(tokens) is Tokens and tokens.images_N == ())  # a peer's paths are not this run's to open
    width = tokens.ids_NL.shape[1]
    ids_NL = _tensor(tokens.ids_NL, INTEGERS, (1, width)).long()
    prompt, length = (int(_tensor(x, INTEGERS, (1,))[0]) for x in (tokens.prompt_N, tokens.length_N))
    _must(0 < prompt < length <= width and width <= MOST_LENGTH and bool((ids_NL >= 0).all()))
    return Tokens(ids_NL=ids_NL[:, :length], prompt_N=torch.tensor([prompt]), length_N=torch.tensor([length]))


def _tensor(x: Any, kinds: tuple[torch.dtype, ...], shape: tuple[int, ...]) -> Tensor:
    # One that is not contiguous may be a terabyte that lies in four bytes.
    _must(type(x) is Tensor and x.layout == torch.strided and x.device.type == "cpu" and x.is_contiguous())
    _must(x.dtype in kinds and x.shape == shape and not x.requires_grad)
    return x


def _column(x: Any, kinds: tuple[torch.dtype, ...], length: int) -> Tensor:
    return _tensor(x, kinds, (length,))


def _finite(x: Any, length: int) -> Tensor:
    column_S = _column(x, REALS, length).float()
    _must(bool(torch.isfinite(column_S).all()))
    return column_S


def _between(x: Any, length: int, least: int, most: int) -> Tensor:
    column_S = _column(x, INTEGERS, length).long()
    _must(length > 0 and bool(((column_S >= least) & (column_S <= most)).all()))
    return column_S


def _forked(episodes: tuple[Episode, ...]) -> None:
    """A row that split off another one begins with its tokens, and does not count them."""
    last: dict[int, Tensor] = {}
    for row in (row for episode in episodes for row in episode.rows):
        assert isinstance(row.decisions, Tokens), "as it was made"
        own = row.decisions.ids_NL[0]
        if row.fork is not None:
            begun = int(row.decisions.prompt_N[0]) + row.fork[1]
            _must(row.fork[0] not in last or torch.equal(own[:begun], last[row.fork[0]][:begun]))
            _must(not row.mask_S[: row.fork[1]].any())
        last[row.sample] = own
