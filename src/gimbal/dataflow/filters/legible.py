"""Removes garbled rollouts."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group

UNREADABLE = {"Cc", "Cn", "Co", "Cs"}  # control, unassigned, private and half characters
BLANK = "\n\t\r"
REPLACED = "\ufffd"  # where bytes are no text


@dataclass(frozen=True, kw_only=True)
class Legible(AbstractFilter):
    """Removes rollouts that are garbled, or end in a loop, from their group; a group without any left is a Drop.

    Garbled: more than ``most`` of a text's characters are unreadable (control characters except line breaks and tabs, code points
    without a character, U+FFFD for invalid bytes). Loop: it ends with the same piece, of at most ``piece`` characters, ``loops`` times
    or more. Neither should be reinforced, whatever its score; a textbook precaution. ``drops/rollouts/Legible`` counts removed
    rollouts.

    - ``most`` = 1 and ``loops`` = 0: the group unchanged.
    """

    most: float = 0.0
    loops: int = 8
    piece: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.most <= 1:
            raise ValueError(f"Legible.most is {self.most}; it is a share of characters, 0 to 1")
        if self.loops < 0 or self.loops == 1 or self.piece < 1:
            raise ValueError(
                f"Legible has loops={self.loops} and piece={self.piece}; a piece has at least 1 character, and comes 2 times or more "
                "(0 does not look)"
            )

    def __call__(self, group: Group) -> Group | Drop:
        kept = tuple(e for e in group.episodes if not (self._garbled(e.text) or self._round(e.text)))
        return replace(group, episodes=kept) if kept else Drop("garbled")

    def _garbled(self, text: str) -> bool:
        bad = sum(c == REPLACED or (c not in BLANK and unicodedata.category(c) in UNREADABLE) for c in text)
        return bad > self.most * len(text)

    def _round(self, text: str) -> bool:
        for size in range(1, self.piece + 1):
            if self.loops == 0 or size * self.loops > len(text):
                return False
            if text[-size:] * self.loops == text[-size * self.loops :]:
                return True
        return False
