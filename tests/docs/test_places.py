"""docs/architecture.md against the code: where each kind of part goes, and the levels of the rooms."""

import ast
import importlib
import importlib.util
import inspect
import re
from functools import cache
from pathlib import Path

import gimbal
from gimbal import config
from gimbal.config.classes import NO_METHODS

PACKAGE = Path(gimbal.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|`]+ \| `([\w/]+)` \| `(Abstract\w+)` \| `(\w+)\(([^)]*)\)` \|$", TEXT, re.MULTILINE)
INNER = {
    "AbstractPreference",
    "AbstractPlanner",
    "AbstractPick",
    "AbstractRetrieval",
    "AbstractPriority",
    "AbstractJudge",
    "AbstractTool",
    "AbstractSuccessTracking",
}  # parts of other parts


@cache
def interfaces():
    """Every abstract class of the package: the file, its node, and the names of its bases."""
    return {
        node.name: (file, node, [ast.unparse(base) for base in node.bases])
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.startswith("Abstract")
    }


def live(name):
    file = interfaces()[name][0]
    module = ".".join(("gimbal", *file.relative_to(PACKAGE).with_suffix("").parts))
    return vars(importlib.import_module(module))[name]


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_every_kind_of_part_has_its_row():
    kinds = {name for name, (_, _, bases) in interfaces().items() if "AbstractPart" in bases}
    assert len(ROWS) == 29 and {interface for _, interface, _, _ in ROWS} == kinds - INNER


def test_each_interface_stands_in_the_room_of_its_package_and_has_that_shape():
    for package, interface, method, given in ROWS:
        file, _, _ = interfaces()[interface]
        assert (PACKAGE / package / "__init__.py").is_file(), package
        assert file.relative_to(PACKAGE).parts[0] == package.split("/")[0], interface
        found = inspect.getattr_static(live(interface), method)
        assert found.__isabstractmethod__ and parameters(found) == re.findall(r"\w+", given), (interface, method)


def test_whatever_has_an_interface_stands_in_a_package_that_its_row_names():
    places = {}
    for package, interface, _, _ in ROWS:
        places.setdefault(interface, []).append("gimbal." + package.replace("/", "."))
    astray = [
        f"{entry.name} of {entry.module} is an {base}"
        for entry in config.catalogue().values()
        for base in entry.bases
        if entry.part and base in places and base not in NO_METHODS
        if not any(entry.module.startswith(place) for place in places[base])
    ]
    assert astray == []


def test_the_levels_are_those_that_the_imports_are_held_to():
    spec = importlib.util.spec_from_file_location("layers", Path(__file__).parents[1] / "test_layers.py")
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    told = {
        room: int(level)
        for level, rooms in re.findall(r"^\| (\d) \| (.+) \|$", TEXT, re.MULTILINE)
        for room in re.findall(r"`(\w+)`", rooms)
    }
    assert told == {room: level for room, level in layers.LEVEL.items() if not room.startswith("__")}
