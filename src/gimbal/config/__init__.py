"""Recipes as data: parts by name, dotted overrides, and the saved recipe of a run."""

from gimbal.config.classes import catalogue, methods, nearest
from gimbal.config.overrides import UnknownKey, flatten, locate, override, paths, reachable
from gimbal.config.parts import (
    RECIPE_FILE,
    Text,
    find,
    plain,
    read,
    refuse_while_loading,
    resolve,
)
from gimbal.config.saved import dump, load, public, read_file, run_of, save, without_places

__all__ = [
    "RECIPE_FILE",
    "Text",
    "UnknownKey",
    "catalogue",
    "dump",
    "find",
    "flatten",
    "load",
    "locate",
    "methods",
    "nearest",
    "override",
    "paths",
    "plain",
    "public",
    "reachable",
    "read",
    "read_file",
    "refuse_while_loading",
    "resolve",
    "run_of",
    "save",
    "without_places",
]
