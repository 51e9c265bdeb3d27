"""An advantage with its sign turned, as a slip of the pen would have it."""

from dataclasses import dataclass
from typing import ClassVar

from gimbal.advantages.base import AbstractAdvantage


@dataclass(frozen=True, kw_only=True)
class Turned(AbstractAdvantage):
    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    def __call__(self, batch):
        return -batch.column("advantage_NS", self)
