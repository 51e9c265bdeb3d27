"""A run's resolved recipe as a readable file; ``gimbal train --from RUN`` starts a new run from it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gimbal import durable
from gimbal.config.expected import DATA_FILES
from gimbal.config.parts import RECIPE_FILE, plain, read, shown

# Where absolute paths begin on Linux, on macOS and on clusters.
ROOTS = "Users|Volumes|data|etc|gpfs|home|lustre|media|mnt|nfs|opt|private|projects?|root|scratch|shared|srv|tmp|usr|var|work|workspace"
MOST_VALUES = 100_000  # in a file
UNTIL = r"""[^\s'"`,;:()|&<>]"""  # what a path within a text is made of


class _Dumper(yaml.SafeDumper):
    """Strings with line breaks in double quotes, on one line."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice; YAML itself would silently use the later one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        given: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key is a word", key.start_mark)
            if key.value in given:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
            given.add(key.value)
        return super().construct_mapping(node, deep)


def _string(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\n" in text else None)


_Dumper.add_representer(str, _string)


def dump(run: Any, recipe: str, directory: str = "") -> str:
    """Every part by its class, every field with its value. ``directory``: where the run starts; its relative paths start there."""
    return _yaml({"recipe": recipe, **({"directory": directory} if directory else {}), "run": plain(run)})


def _yaml(data: Mapping[str, Any]) -> str:
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120)
    return f"# All fields of the run. Start a new run with them: gimbal train --from DIRECTORY [key=value ...]\n{text}"


def public(path: Path) -> str:
    """A saved recipe for other people: absolute paths in it are cut to their last part (``without_places``)."""
    data = read_file(path)
    return _yaml({key: _public(value) for key, value in data.items() if key != "directory"})


def _public(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_public(key): _public(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_public(item) for item in value]
    return without_places(value) if isinstance(value, str) else value


def without_places(text: str) -> str:
    """The text with each absolute path cut to its last part, and the home directory written as ~.

    A path begins with one of ``ROOTS``, or with the first directory of the home or of the working directory, so that a pattern such as
    /answer/ stays. Spaces are part of a path only where the whole text is one.
    """
    home = Path.home()
    own = map(re.escape, (*home.parts[1:2], *Path.cwd().parts[1:2]))
    begins = rf"/(?:{'|'.join([ROOTS, *own])})(?![\w.-])"
    if re.match(begins, text) and os.path.exists(text.rpartition(":")[0] or text):
        return Path(text).name

    def cut(found: re.Match[str]) -> str:
        path = Path(found[0].removeprefix("file://"))
        return "~" if path == home else path.name

    return re.sub(rf"(?<![\w.~/:-])(?:file://)?{begins}{UNTIL}*", cut, text)


def save(text: str, path: Path) -> None:
    """Write the file atomically."""
    durable.write(path, text)


def load(path: Path, kind: type) -> tuple[str, Any]:
    """(name of the recipe, its parts as an instance of ``kind``) of a run directory or its recipe file."""
    path = path / RECIPE_FILE if path.is_dir() else path
    data = read_file(path)
    run = run_of(path, data)
    began = str(data.get("directory", ""))
    for file in _files(run) if began else ():
        if not Path(file).exists() and (Path(began) / file).exists():
            raise ValueError(
                f"{path} names {file}, relative to the directory where the run was started: first run cd {shlex.quote(began)}"
            )
    return str(data.get("recipe", path.stem)), read(run, kind)


def run_of(path: Path, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The saved fields of the run in a recipe file that holds ``data``."""
    if "run" not in data:
        raise ValueError(f"{path} is not the recipe of a run: the key run is missing")
    if not isinstance(data["run"], Mapping):
        raise ValueError(
            f"{path} is not the recipe of a run: the key run is {shown(data['run'])}, not the fields of a run"
        )
    return data["run"]


def _files(value: Any) -> Iterator[str]:
    """The relative paths in saved parts: references and data files."""
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _files(item)
    elif isinstance(value, str) and "\n" not in value:
        place = value.rpartition(":")[0] if ".py:" in value else value
        if place.endswith((".py", *DATA_FILES)) and not Path(place).is_absolute():
            yield place


def read_file(path: Path) -> Mapping[str, Any]:
    """The mapping in a YAML or JSON file."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, _Loader)
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply") from error
    except (ValueError, yaml.YAMLError) as error:  # not JSON, not text, or values that Python lacks
        raise ValueError(f"{path} is not readable as {path.suffix[1:]}: {' '.join(str(error).split())}") from error
    if _size(data, {}) > MOST_VALUES:
        raise ValueError(
            f"{path} holds more than {MOST_VALUES:,} values once its aliases (*NAME) are replaced by what they stand for; write out "
            "what is meant"
        )
    if not isinstance(data, Mapping):
        raise ValueError(f"{path} holds no keys and values, such as steps: 100")
    return data


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are, those of an alias counted wherever it stands. One that holds itself has no end."""
    if not isinstance(value, Mapping | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES + 1
        items = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(_size(item, known) for item in items)
    return known[id(value)]
