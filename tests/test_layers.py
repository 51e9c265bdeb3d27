"""A room imports only rooms of lower levels: the arrows of the package, read from its imports."""

import ast
import importlib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "gimbal"
LEVEL = {
    "durable": 0,
    "waiting": 0,
    "hangup": 0,
    "nested": 0,
    "chats": 0,
    "records": 0,
    "composition": 0,
    "ops": 0,
    "config": 0,  # names other rooms only at run time, in text
    "objectives": 1,
    "advantages": 1,
    "controllers": 1,
    "sandbox": 1,
    "policies": 2,
    "critics": 2,
    "rewards": 2,
    "environments": 2,
    "dataflow": 3,
    "engines": 4,
    "workflows": 4,
    "learning": 4,
    "report": 5,
    "runtime": 5,
    "serve": 5,
    "recipes": 6,
    "api": 7,
    "cli": 7,
    "__main__": 7,
    "__init__": 7,
}
# Within a level, one way only.
SIBLINGS = {
    ("records", "chats"),
    ("ops", "records"),
    ("ops", "composition"),
    ("composition", "records"),
    ("critics", "policies"),
    ("environments", "rewards"),
    ("environments", "policies"),
    ("learning", "engines"),
    ("workflows", "engines"),
    ("runtime", "report"),
    ("config", "durable"),
    ("config", "nested"),
    ("composition", "nested"),
}
SIBLINGS |= {("api", "cli"), ("cli", "api"), ("__main__", "cli"), ("__init__", "api")}
ONLY = {
    "ray": "runtime/ray.py",
    "vllm": "engines/vllm.py",
    "gymnasium": "environments/gym.py",
    "pydantic_monty": "sandbox/monty.py",
    "pyspiel": "environments/games.py",
    "diffusers": "policies/diffusers.py",
    "sklearn": "rewards/digits.py",
    "scipy": "policies/program.py",
    "h5py": "environments/recording.py",
    "textarena": "environments/textarena.py",
    "textworld": "environments/textworld.py",
}
# Environments of our own are of its class, and one file makes all of them.
WORLDS = {
    ("gymnasium", f"environments/{name}.py")
    for name in (
        "agents",
        "bounded_cart",
        "coop_line",
        "hidden_cart",
        "coupled_bandit",
        "docking",
        "gym_text",
        "held",
        "hypergrid",
        "learned_world",
        "merging",
        "merging_plans",
        "misread_cart",
        "opening",
        "planted_bugs",
        "point_maze",
        "point_reach",
        "pushed_pendulum",
        "risky_point",
        "spring_wall",
        "spaces",
        "sticky_point",
        "tabular",
        "there_and_back",
        "told_pendulum",
    )
}
FILES = sorted(SOURCE.rglob("*.py"))


def room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_point_down():
    arrows = {(file, name.split(".")[1]) for file in FILES for name in imports(file) if name.startswith("gimbal.")}
    upward = {
        f"{file.relative_to(SOURCE)} (level {LEVEL[room(file)]}) imports {there} (level {LEVEL[there]})"
        for file, there in arrows
        if there in LEVEL and there != room(file) and (room(file), there) not in SIBLINGS
        if LEVEL[there] >= LEVEL[room(file)]
    }
    assert len(arrows) > 1000 and upward == set()


def test_no_circles():
    """However late an import stands: two files that need each other are one file, or miss a third."""
    names = {".".join(file.relative_to(SOURCE.parent).with_suffix("").parts): file for file in FILES}
    needs = {
        name: {there for found in imports(file) for there in (found, found.rpartition(".")[0]) if there in names}
        - {name}
        for name, file in names.items()
    }
    while leaves := [name for name, there in needs.items() if not there & needs.keys()]:
        for name in leaves:
            del needs[name]
    assert needs == {}


def test_heavy_packages_stay_in_their_file():
    found = {(name.split(".")[0], str(file.relative_to(SOURCE))) for file in FILES for name in imports(file)}
    assert {(name, place) for name, place in found if name in ONLY} == {*ONLY.items(), *WORLDS}


def test_sizes():
    assert [file for file in FILES if len(file.read_text().splitlines()) > 500] == []
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= 80, f"{node.name} of {file} has {length} lines"


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by their name alone: of two, whichever comes second is not collected."""
    files = sorted(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in Counter(files).items() if count > 1] == []


def test_every_room_has_a_level():
    assert {room(file) for file in FILES} <= set(LEVEL)


def test_classes_are_abstract_or_final():
    """A concrete class is wrapped, never subclassed: behaviour has one place."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ClassDef)
    }
    errors = {name for name, parents in bases.items() if name.endswith("Error") or "ValueError" in parents}
    broken = {
        (name, base)
        for name, parents in bases.items()
        for base in parents
        if base in bases and not base.startswith("Abstract") and "Protocol" not in bases[base] and base not in errors
    }
    assert broken == set()


@pytest.mark.parametrize("room", ["objectives", "advantages", "controllers"])
def test_a_room_of_methods_exports_all_of_them(room):
    package = importlib.import_module(f"gimbal.{room}")
    classes = {
        node.name
        for file in (SOURCE / room).rglob("*.py")
        for node in tree(file).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    assert set(package.__all__) == classes
