"""What an engine returns of a row that continued, together with what was known of its beginning."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gimbal.records import Part, Rollout


def joined(base: Rollout, kept: int, told: int | None, whole: Rollout, *, counts: bool) -> Rollout:
    """``whole`` as it is to be read: its first ``kept`` decisions are ``base``'s, then ``told`` ones are an observation, then its own.

    ``counts``: whether what it has of ``base`` counts in it, as of a row that continues and not of a branch. ``told`` is None where it
    was told nothing; 0 is an empty answer, which begins a turn all the same.
    """
    begun = kept + (told or 0)
    own = whole.length - begun
    mask_S = base.mask_S[:kept] if counts else torch.zeros(kept, dtype=torch.bool)
    mask_S = torch.cat([mask_S, torch.zeros(begun - kept, dtype=torch.bool), torch.ones(own, dtype=torch.bool)])
    reward_S = whole.reward_S.clone()
    if counts:
        reward_S[:kept] = base.reward_S[:kept]
    return replace(
        whole,
        mask_S=mask_S,
        reward_S=reward_S,
        entropy_S=_entropy_S(base, kept, begun, whole),
        part_S=_part_S(base, kept, begun - kept, own, told),
        turn_S=_turn_S(base, kept, begun - kept, own, told),
        fork=base.fork if counts else (base.sample, kept),
    )


def _entropy_S(base: Rollout, kept: int, begun: int, whole: Rollout) -> Tensor | None:
    """An engine knows only the entropies of what it drew since the row came back to it."""
    if whole.entropy_S is None or base.entropy_S is None:
        return whole.entropy_S
    return torch.cat([base.entropy_S[:kept], torch.zeros(begun - kept), whole.entropy_S[begun:]])


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
