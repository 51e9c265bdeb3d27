"""What agents and an endpoint said to one another: on file, and as rows that can be trained on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gimbal.policies.token import Sampling, Tokens, of_tokens
from gimbal.records import AbstractSampling, Drop, Episode, Part, Rollout, Task
from gimbal.report.files import JsonLines


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
    """What an agent asked under one name, and the ``score`` it was given for it; None while it has none."""

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

    An exchange whose context begins with the tokens of a row extends that row: what was said in between becomes observations,
    which are not masked in and count as turns no more than tools' answers do. Any other exchange begins a row; so does one that was
    drawn at another temperature, for the learner evaluates a row at one. No token is in two rows as a decision.
    """
    found: list[Rollout] = []
    for exchange in exchanges:
        rollout, first = exchange.rollout, int(_tokens(exchange.rollout).prompt_N[0])
        context = exchange.ids[:first]
        places = [
            place
            for place, row in enumerate(found)
            if context[: len(_ids(row))] == _ids(row) and _drawn_from(row.sampling) == _drawn_from(rollout.sampling)
        ]
        if places:
            place = max(places, key=lambda place: len(_ids(found[place])))
            found[place] = _extended(found[place], rollout)
        else:
            found.append(
                replace(rollout, part_S=torch.zeros_like(rollout.version_S), turn_S=torch.zeros_like(rollout.version_S))
            )
    return found


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
    """One line of JSON: what a session earned, which ends it."""
    return json.dumps({"session": session, "score": score})


def read(path: str | Path) -> list[Session]:
    """The sessions of a file that an endpoint wrote, in the order of their beginning. A line that was torn by a kill is left out."""
    found: list[Session] = []
    places: dict[str, int] = {}  # of the sessions that have no reward yet; one that has it is over, and its name free
    for row in JsonLines(Path(path)).read():
        name = row["session"]
        if name not in places:
            places[name] = len(found)
            found.append(Session(name=name))
        place = places[name]
        if "score" in row:
            found[place] = replace(found[place], score=row["score"])
            del places[name]
        else:
            found[place] = replace(found[place], exchanges=(*found[place].exchanges, _read(row)))
    return found


def _read(row: dict[str, Any]) -> Exchange:
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
