"""Recipes as data: parts by name, dotted overrides, and the file that a run is started again from."""

from gimbal.config.overrides import flatten, override, paths
from gimbal.config.parts import Text, catalogue, find, methods, nearest, plain, read, resolve
from gimbal.config.saved import RECIPE_FILE, dump, load, read_file, save

__all__ = [
    "RECIPE_FILE",
    "Text",
    "catalogue",
    "dump",
    "find",
    "flatten",
    "load",
    "methods",
    "nearest",
    "override",
    "paths",
    "plain",
    "read",
    "read_file",
    "resolve",
    "save",
]
