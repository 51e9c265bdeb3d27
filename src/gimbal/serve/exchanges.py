"""The exchanges between agents and an endpoint: on file, and as rows to train on."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from gimbal.policies.token import Sampling, Tokens, of_tokens
from gimbal.records import AbstractSampling, Drop, Episode, Part, Rollout, Task
from gimbal.serve.asked import score_of

HEAD = re.compile(rb'\{"session": ("(?:[^"\\]|\\.)*"), "(score|task)": ')


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One answer of the policy: ``rollout`` has the whole context as its prompt. ``text`` is context and answer as the template
    writes them, special tokens included."""

    session: str
    rollout: Rollout
    text: str

    @property
    def ids(self) -> list[int]:
        return _ids(self.rollout)


@dataclass(frozen=True, kw_only=True)
class Session:
    """An agent's exchanges under one name, and their ``score``; None while there is none."""

    name: str
    exchanges: tuple[Exchange, ...] = ()
    score: float | None = None

    @property
    def rows(self) -> list[Rollout]:
        return rows(self.exchanges)

    def episode(self, task: Task, sample: int) -> Episode | Drop:
        """The session as one attempt at a task: its rows, which share its score, or why it cannot be trained on."""
        drawn = sum(exchange.rollout.length for exchange in self.exchanges)
        if not self.exchanges:
            return Drop("no answers", said=f"session {self.name} asked nothing")
        if self.score is None:
            return Drop("no reward", drawn=drawn, said=f"session {self.name} ended without a reward")
        if not all(exchange.rollout.sampling.trainable for exchange in self.exchanges):
            said = f"session {self.name} asked for greedy or truncated answers; serve it with fixed=True"
            return Drop("untrainable", drawn=drawn, said=said)
        made = [
            replace(row, task=task, sample=sample, row=number, score=self.score) for number, row in enumerate(self.rows)
        ]
        return Episode(rows=tuple(made))

    def continued(self, text: str) -> Exchange | None:
        """The longest exchange that this text continues from."""
        found = [exchange for exchange in self.exchanges if text.startswith(exchange.text)]
        return max(found, key=lambda exchange: len(exchange.text), default=None)


def rows(exchanges: Iterable[Exchange]) -> list[Rollout]:
    """The token-exact paths through a session's exchanges, in order: each becomes a row, with a turn for each answer.

    An exchange whose context begins with the tokens of a row extends that row, or the longest of several: the tokens in between become
    observations, which do not count as decisions and, like tool answers, not as turns. Any other exchange begins a row; so does one
    sampled at another temperature, because the learner evaluates a row at one. No token is a decision in two rows.

    Rows are found by a hash of their tokens, so the work grows only with the tokens, not with the number of rows.
    """
    found: list[Rollout] = []
    told: list[list[int]] = []  # the tokens of each row
    ended_with: dict[Sampling, dict[int, set[int]]] = {}  # the rows of one distribution, by the hash of their tokens
    for exchange in exchanges:
        rollout, ids = exchange.rollout, exchange.ids
        first, ending = int(_tokens(rollout).prompt_N[0]), ended_with.setdefault(_drawn_from(rollout.sampling), {})
        hashes = list(accumulate(ids, _hashed, initial=0))
        places = (
            place
            for length in range(first, 0, -1)
            for place in sorted(ending.get(hashes[length], ()))
            if told[place] == ids[:length]  # hashes may collide
        )
        if (place := next(places, None)) is not None:
            ending[hashes[len(told[place])]].remove(place)
            found[place], told[place] = _extended(found[place], rollout), ids
        else:
            place, zeros_S = len(found), torch.zeros_like(rollout.version_S)
            found.append(replace(rollout, part_S=zeros_S, turn_S=zeros_S))
            told.append(ids)
        ending.setdefault(hashes[-1], set()).add(place)
    return found


def _hashed(before: int, token: int) -> int:
    return hash((before, token))


def _extended(row: Rollout, rollout: Rollout) -> Rollout:
    tokens, more = _tokens(row), _tokens(rollout)
    start, first, ids = int(tokens.prompt_N[0]), int(more.prompt_N[0]), _ids(rollout)
    told = first - int(tokens.length_N[0])
    assert row.part_S is not None and row.turn_S is not None, "rows are labelled"
    turn = int(row.turn_S[-1])

    def joined(a_S: torch.Tensor, between: float | int, b_S: torch.Tensor) -> torch.Tensor:
        return torch.cat([a_S, torch.full((told,), between, dtype=a_S.dtype), b_S])

    response_S = torch.zeros_like(rollout.version_S)
    return replace(
        rollout,
        task=row.task,
        decisions=Tokens.row(ids[:start], ids[start:]),
        behavior_S=joined(row.behavior_S, 0.0, rollout.behavior_S),
        version_S=joined(row.version_S, int(rollout.version_S[0]), rollout.version_S),
        mask_S=joined(row.mask_S, False, rollout.mask_S),
        reward_S=joined(row.reward_S, 0.0, rollout.reward_S),
        entropy_S=None,
        part_S=joined(row.part_S, int(Part.OBSERVATION), response_S),
        turn_S=joined(row.turn_S, turn, response_S + turn + 1),
        text=row.text + rollout.text,
    )


def written(exchange: Exchange) -> str:
    """One line of JSON with all of it."""
    rollout, ids = exchange.rollout, exchange.ids
    first = int(_tokens(rollout).prompt_N[0])
    return json.dumps(
        {
            "session": exchange.session,
            "task": rollout.task.id,
            "messages": rollout.task.columns.get("messages"),
            "tools": rollout.task.columns.get("tools"),
            "prompt": rollout.task.prompt,
            "prompt_ids": ids[:first],
            "token_ids": ids[first:],
            "logprobs": rollout.behavior_S.tolist(),
            "versions": rollout.version_S.tolist(),
            "sampling": asdict(rollout.sampling),
            "sample": rollout.sample,
            "stop": rollout.stop,
            "answer": rollout.text,
            "text": exchange.text,
        }
    )


def rewarded(session: str, score: float) -> str:
    """One line of JSON: the session's reward, which ends it."""
    return json.dumps({"session": session, "score": score})


def read(path: str | Path, only: str | None = None) -> list[Session]:
    """The sessions of a file that an endpoint wrote, or those of one name, in the order they began. A line cut off by a kill is
    skipped; one with other content is a ValueError."""
    found: list[Session] = []
    places: dict[str, int] = {}  # of the sessions that have no reward yet
    said: dict[int, list[Exchange]] = {}
    for number, line in _lines(Path(path)):
        if only is not None and (head := _head(line)) is not None and head[0] != only:
            continue
        with _line(path, number):
            row = _row(line)
            if row is None or (only is not None and row["session"] != only):
                continue
            name = row["session"]
            if not isinstance(name, str):
                raise ValueError(f"its session is {name!r}, which is not a name")
            if name not in places:
                places[name] = len(found)
                found.append(Session(name=name))
            place = places[name]
            if "score" in row:
                found[place] = replace(found[place], score=score_of(row["score"]))
                del places[name]
            else:
                said.setdefault(place, []).append(_read(row))
    return [replace(session, exchanges=tuple(said.get(place, ()))) for place, session in enumerate(found)]


def ended(path: Path) -> dict[str, bool]:
    """Every name on file, and whether its last line is a reward. Answers are not decoded: a record may hold gigabytes."""
    found: dict[str, bool] = {}
    torn = False
    for number, line in _lines(path):
        torn = False
        if (head := _head(line)) is not None:
            found[head[0]] = head[1]
            continue
        with _line(path, number):
            if torn := (row := _row(line)) is None:
                continue
            found[str(row["session"])] = "score" in row
    if torn:
        warnings.warn(
            f"{path}: its last line is unfinished, as a kill leaves it, and was left out", RuntimeWarning, stacklevel=2
        )
    return found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give the one that gimbal serve --record FILE.jsonl wrote")
    with path.open("rb") as file:
        yield from enumerate(file, 1)


def _head(line: bytes) -> tuple[str, bool] | None:
    """The session of a whole line as ``written`` and ``rewarded`` make it, and whether it is a reward; None: look closer."""
    matched = HEAD.match(line) if line.endswith(b"}\n") else None
    return None if matched is None else (json.loads(matched[1]), matched[2] == b"score")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:  # torn by a kill: the others stay
        return None
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    return row


@contextmanager
def _line(path: str | Path, number: int) -> Iterator[None]:
    """An inconsistent line was edited by hand; the error names the line."""
    try:
        yield
    except (KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}, line {number} is not as gimbal serve wrote it: {said}; fix or remove it") from error


def _read(row: dict[str, Any]) -> Exchange:
    lengths = {key: len(row[key]) for key in ("token_ids", "logprobs", "versions")}
    if len(set(lengths.values())) > 1 or not row["token_ids"]:
        raise ValueError(f"its columns are not of one length: {lengths}")
    if not all(map(math.isfinite, row["logprobs"])):
        raise ValueError("a log-probability is not finite")
    columns = {key: row[key] for key in ("prompt_ids", "messages", "tools") if row.get(key)}
    behavior_S = torch.tensor(row["logprobs"], dtype=torch.float32)
    rollout = Rollout(
        task=Task(id=row["task"], prompt=row["prompt"], columns=columns),
        sample=row["sample"],
        decisions=Tokens.row(row["prompt_ids"], row["token_ids"]),
        behavior_S=behavior_S,
        version_S=torch.tensor(row["versions"]),
        mask_S=torch.ones(len(behavior_S), dtype=torch.bool),
        reward_S=torch.zeros(len(behavior_S)),
        stop=row["stop"],
        sampling=Sampling(**(row["sampling"] | {"stop": tuple(row["sampling"]["stop"])})),
        text=row["answer"],
    )
    return Exchange(session=row["session"], rollout=rollout, text=row["text"])


def _drawn_from(sampling: AbstractSampling) -> Sampling:
    """Its distribution alone."""
    return replace(of_tokens(sampling), max_length=1, stop=())


def _tokens(rollout: Rollout) -> Tokens:
    assert isinstance(rollout.decisions, Tokens), type(rollout.decisions)
    return rollout.decisions


def _ids(rollout: Rollout) -> list[int]:
    tokens = _tokens(rollout)
    return tokens.ids_NL[0, : int(tokens.length_N[0])].tolist()
