"""Joins a continued row from an engine with its known beginning, and removes that beginning again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from gimbal.policies.token import Tokens
from gimbal.records import Part, Rollout

COLUMNS = (
    "behavior_S",
    "version_S",
    "mask_S",
    "reward_S",
    "entropy_S",
    "rival_S",
    "rival_logprob_S",
    "part_S",
    "turn_S",
)


@dataclass(frozen=True, kw_only=True)
class Grown:
    """A row without what it shares with the one it continued. A journal of whole rows would hold the first tokens of a dialogue once
    per turn.

    ``values`` are the fields of the row; of those in ``cut`` the first ``kept`` decisions (of its text: the base's text) are missing.
    """

    kept: int
    cut: tuple[str, ...]
    values: Mapping[str, Any]

    @classmethod
    def of(cls, base: Rollout, kept: int, row: Rollout) -> Grown:
        values = {item.name: vars(row)[item.name] for item in fields(row)}
        cut: dict[str, Any] = {}
        for name in COLUMNS:
            before_S, after_S = vars(base)[name], values[name]
            if before_S is not None and after_S is not None and _same(before_S[:kept], after_S[:kept]):
                cut[name] = after_S[kept:].clone()  # a view would be saved with all that it is a view of
        before, after = base.decisions, row.decisions
        if isinstance(before, Tokens) and isinstance(after, Tokens):
            end = int(after.prompt_N[0]) + kept
            if _same(before.prompt_N, after.prompt_N) and _same(before.ids_NL[:, :end], after.ids_NL[:, :end]):
                cut["decisions"] = replace(after, ids_NL=after.ids_NL[:, end:].clone())
        if row.text.startswith(base.text):
            cut["text"] = row.text[len(base.text) :]
        return cls(kept=kept, cut=tuple(cut), values=values | cut)

    def row(self, base: Rollout) -> Rollout:
        """The row again, to the bit."""
        values = dict(self.values)
        for name in self.cut:
            if name == "text":
                values[name] = base.text + values[name]
            elif name == "decisions":
                before, rest = base.decisions, values[name]
                assert isinstance(before, Tokens), type(before)
                known = before.ids_NL[:, : int(rest.prompt_N[0]) + self.kept]
                values[name] = replace(rest, ids_NL=torch.cat([known, rest.ids_NL], 1))
            else:
                values[name] = torch.cat([vars(base)[name][: self.kept], values[name]])
        return Rollout(**values)


def _same(a: Tensor, b: Tensor) -> bool:
    """To the bit: 0 is not -0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def joined(base: Rollout, kept: int, told: int | None, whole: Rollout, *, counts: bool) -> Rollout:
    """``whole`` as it is to be read: its first ``kept`` decisions are ``base``'s, then ``told`` ones are an observation, then its own.

    ``counts``: whether what it has of ``base`` counts in it, as of a row that continues and not of a branch. ``told`` is None where it
    was told nothing; 0 is an empty answer, which begins a turn all the same. A branch of another sample was paid what that one was paid
    on its way to the split, so that the returns of a group are of whole paths; within an episode that payment stays in the other row.
    """
    begun = kept + (told or 0)
    own = whole.length - begun
    mask_S = base.mask_S[:kept] if counts else torch.zeros(kept, dtype=torch.bool)
    mask_S = torch.cat([mask_S, torch.zeros(begun - kept, dtype=torch.bool), whole.mask_S[begun:]])
    reward_S = whole.reward_S.clone()
    if counts or base.sample != whole.sample:
        reward_S[:kept] = base.reward_S[:kept]
    return replace(
        whole,
        mask_S=mask_S,
        reward_S=reward_S,
        entropy_S=_noted_S(base.entropy_S, kept, begun, whole.entropy_S),
        rival_S=_noted_S(base.rival_S, kept, begun, whole.rival_S),
        rival_logprob_S=_noted_S(base.rival_logprob_S, kept, begun, whole.rival_logprob_S),
        part_S=_part_S(base, kept, begun - kept, own, told),
        turn_S=_turn_S(base, kept, begun - kept, own, told),
        fork=base.fork if counts else (base.sample, kept),
    )


def newest_turn(row: Rollout) -> list[int]:
    """The tokens of a row's newest turn, without observations: a text does not show who wrote which part."""
    tokens = row.decisions
    assert isinstance(tokens, Tokens), type(tokens)
    ids_S = tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])]
    if row.turn_S is not None and row.part_S is not None:
        ids_S = ids_S[(row.turn_S == row.turn_S.max()) & (row.part_S != Part.OBSERVATION)]
    return ids_S.tolist()


def branched(base: Rollout, kept: int, forced: int, whole: Rollout) -> Rollout:
    """``whole`` as a branch: the first ``kept`` decisions are ``base``'s, then come ``forced`` ones; neither count in it."""
    row = joined(base, kept, None, whole, counts=False) if kept else whole
    return replace(row, mask_S=row.mask_S & (torch.arange(row.length) >= kept + forced)) if forced else row


def _noted_S(before_S: Tensor | None, kept: int, begun: int, after_S: Tensor | None) -> Tensor | None:
    """An engine knows only the entropies and rivals of what it generated since it received the row again."""
    if after_S is None or before_S is None:
        return after_S
    return torch.cat([before_S[:kept], torch.zeros(begun - kept, dtype=after_S.dtype), after_S[begun:]])


def _part_S(base: Rollout, kept: int, told: int, own: int, said: int | None) -> Tensor | None:
    if base.part_S is None and said is None:
        return None
    before_S = torch.full((kept,), int(Part.RESPONSE)) if base.part_S is None else base.part_S[:kept]
    observed_S, own_S = torch.full((told,), int(Part.OBSERVATION)), torch.full((own,), int(Part.RESPONSE))
    return torch.cat([before_S, observed_S, own_S])


def _turn_S(base: Rollout, kept: int, told: int, own: int, said: int | None) -> Tensor | None:
    """An observation belongs to the turn that it answers."""
    if base.turn_S is None and said is None:
        return None
    turn_S = torch.zeros(base.length, dtype=torch.long) if base.turn_S is None else base.turn_S
    # A branch continues in the turn that it left its trunk in, which the decision before may not belong to: it may be an observation.
    turn = int(turn_S[min(kept, base.length - 1)])
    after = turn + (said is not None)
    return torch.cat([turn_S[:kept], torch.full((told,), turn), torch.full((own,), after)])
