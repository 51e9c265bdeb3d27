"""The names that ``Dataset`` and its kin had before; files of people's own import them from here."""

from gimbal.environments.dataset import Dataset as Jsonl
from gimbal.environments.dataset import Rows
from gimbal.environments.forms import short

__all__ = ["Jsonl", "Rows", "short"]
