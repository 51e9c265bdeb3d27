"""Self-play: one policy in both seats of a game."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gimbal.environments.base import Moment
from gimbal.environments.games import AbstractGame, Game, Turn, decisions, nash_conv
from gimbal.environments.several import Several
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import Acted, Drop, Episode, Rollout, Task, is_chat
from gimbal.workflows.base import AbstractWorkflow, Act, Attempt, Draw, Steps
from gimbal.workflows.dialogue import shown


@dataclass(frozen=True, kw_only=True)
class SelfPlay(AbstractWorkflow):
    """The samples of a group are the seats of matches: of a game for two, 2k and 2k + 1 play match k, all with the same deal.

    A seat's observations are its prompt (in a chat, a user's message), rebuilt for each action: an episode has one row per action of
    its seat. An action is the first sampled token where the game's actions are numbers (``Game``), and a whole turn where they are
    words (``TextArenaMatch``). Each seat earns its return in the game on its last action, and ``role`` of its rows is "seat 0",
    "seat 1", and so on.

    - What an illegal action costs, the game says. ``tool/failed_frac`` is the share of illegal actions.
    - If the game of a match fails, no seat of it has an episode, and other matches continue: ``environment_error``. The actions of all
      matches together have ``deadline`` seconds, and ``setup`` to be made and reset.
    - A seat that never acts has no episode either: ``unplayed``.
    - One policy plays all, unless the run's ``separate`` has a model for "seat 0", ...
    """

    game: AbstractGame = Game()
    deadline: float = 60.0
    setup: float = 60.0

    @property
    def whole(self) -> bool:
        return True

    @property
    def players(self) -> frozenset[str]:
        return frozenset(map(_role, range(self.game.seats)))

    def __call__(self, attempt: Attempt) -> Steps:
        count, seats = len(attempt.samples), self.game.seats
        if count % seats:
            raise ValueError(
                f"SelfPlay needs a num_generations that {seats} divides, the seats of a match; got {count}"
            )
        tables = Several(of=self.game, count=count // seats)
        rows: list[list[Rollout]] = [[] for _ in attempt.samples]
        acts: list[list[Acted]] = [[] for _ in attempt.samples]
        begun = yield Act(environment=tables, deadline=self.deadline, setup=self.setup)
        moments = begun.observation
        while not begun.error and (open_ := [at for at, moment in enumerate(moments) if not moment.ended]):
            turns = {at: moments[at].observation for at in open_}
            drawn = yield [self._draw(attempt, at, turn) for at, turn in turns.items()]
            actions: list[str | None] = [None] * len(moments)
            for (at, turn), row in zip(turns.items(), drawn, strict=True):
                rows[seats * at + turn.seat].append(replace(row, stop="stop") if self.game.most else row)
                actions[at] = row.text
            begun = yield Act(environment=tables, action=tuple(actions), deadline=self.deadline, setup=self.setup)
            if begun.error:
                break
            moments = begun.observation
            for at, turn in turns.items():
                own = acts[seats * at + turn.seat]
                own.append(Acted(len(own), moments[at].calls, moments[at].errors, begun.seconds / len(turns)))
        if begun.error:
            return [Drop(begun.failed, drawn=_spent(own), said=begun.error) for own in rows]
        played = enumerate(zip(rows, acts, strict=True))
        return [_played(own, steps, moments[at // seats], at % seats) for at, (own, steps) in played]

    def _draw(self, attempt: Attempt, match: int, turn: Turn) -> Draw:
        chat = is_chat(attempt.task.columns.get("messages"))
        task = shown(attempt.task, turn.seen) if chat else replace(attempt.task, prompt=f"{turn.seen}\n")
        sample, role = attempt.samples[self.game.seats * match + turn.seat], _role(turn.seat)
        return Draw(task=task, sample=sample, sampling=attempt.sampling, most=self.game.most, role=role)


def exploitability(policy: TokenPolicy, name: str) -> float:
    """The exact distance from an equilibrium of a policy that plays this game through ``SelfPlay`` (``games.nash_conv``)."""
    return nash_conv(name, chances_of(policy, name))


def chances_of(policy: TokenPolicy, name: str) -> dict[str, dict[int, float]]:
    """What a policy that plays this game through ``SelfPlay`` does: by what a seat has seen, the probability of each legal action.

    They sum to less than 1 where it may take an illegal one (``games.illegal``).
    """
    chances: dict[str, dict[int, float]] = {}
    for seen, legal in decisions(name).items():
        prompt = policy.encode_task(Task(id=name, prompt=f"{seen}\n"))
        rows = [Tokens.row(prompt, policy.tokenizer.encode(str(a), add_special_tokens=False)[:1]) for a in legal]
        with torch.no_grad():
            logprob_N = policy.evaluate(Tokens.stack(rows)).logprob_NS[:, 0]
        chances[seen] = dict(zip(legal, logprob_N.exp().tolist(), strict=True))
    return chances


def _role(seat: int) -> str:
    return f"seat {seat}"


def _spent(rows: list[Rollout]) -> int:
    return sum(row.drawn for row in rows)


def _played(rows: list[Rollout], acts: list[Acted], end: Moment, seat: int) -> Episode | Drop:
    """The result of a seat whose match ended this way."""
    if end.error:  # told once: it is one table that broke
        return Drop(end.failed, drawn=_spent(rows), said=end.error if seat == 0 else "")
    if not rows:
        return Drop("unplayed")
    reward_S = rows[-1].reward_S.clone()
    reward_S[-1] += end.observation.returns[seat]
    return Episode(rows=(*rows[:-1], replace(rows[-1], reward_S=reward_S, stop="terminated")), acts=tuple(acts))
