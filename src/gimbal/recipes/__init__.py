"""Recipes: each file has one function of the same name that returns a Run. There is no registry.

``core/`` holds recipes to start from, ``papers/QUESTION/`` recipes of published work, grouped by the question they answer.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gimbal.config import catalogue, flatten, nearest, read_file, resolve
from gimbal.config import load as load_saved
from gimbal.config.classes import first_sentence, heads
from gimbal.config.own import told
from gimbal.config.parts import broken
from gimbal.waiting import tell

START = {  # recipes to begin with
    "stable": "your model and reward: GRPO that adapts its own learning rate",
    "grpo": "GRPO with a learning rate you set; variants: dapo, dr_grpo, gspo, cispo",
    "sft": "imitate written answers, before RL or instead of it",
    "dpo": "prefer one of two written answers",
    "terminal": "an agent that runs programs; for your own program that calls a model, use agent=agent.py:solve",
    "cartpole": "control with discrete actions; pendulum or sac for continuous ones",
    "flow_grpo": "an image model with flow matching; ddpo for diffusion",
    "demo": "watch gimbal-tiny learn, in a minute on a CPU",
}
_HERE = Path(__file__).parent
FILES = (".yaml", ".yml", ".json")  # that name a recipe
# Kinds of parts that answer one question in any recipe: Pace is also in core recipes, but still answers staleness.
_KINDS = {
    "staleness": {"AbstractStalenessSpec", "AbstractAnchor", "AbstractCorrection"},
    "mismatch": {"AbstractCorrection"},
    "data": {"AbstractCurriculumSpec", "AbstractBudgetSpec"},
    "agents": {"AbstractWorkflow", "AbstractTool"},
    "rewards": {"AbstractReward"},
}
_reading: list[Path] = []  # recipe files, each named by the previous one


@cache
def _files() -> dict[str, Path]:
    """The file of every recipe, by name; names are unique across questions."""
    return {file.stem: file for file in sorted(_HERE.rglob("*.py"), key=lambda file: file.stem) if file.parent != _HERE}


@cache
def names() -> dict[str, str]:
    """Every recipe with the first sentence of its docstring, read without importing it."""
    found: dict[str, str] = {}
    for name, file in _files().items():
        for head in heads(file.read_text(encoding="utf-8")):
            if head.kind == "def" and head.name == name:
                found[name] = first_sentence(head.docstring)
    return found


@cache
def questions() -> dict[str, str]:
    """``core`` and every question that recipes answer, each with its description."""
    packages = [_HERE / "core", *sorted(file.parent for file in (_HERE / "papers").glob("*/__init__.py"))]
    sources = {package.name: ast.parse((package / "__init__.py").read_text(encoding="utf-8")) for package in packages}
    return {name: first_sentence(ast.get_docstring(source) or "") for name, source in sources.items()}


def of(question: str) -> dict[str, str]:
    """The recipes for this question, as ``names`` has them."""
    if question not in questions():
        raise ValueError(
            f"there is no question {question}{nearest(question, questions())}; choose from {', '.join(questions())}"
        )
    return {name: said for name, said in names().items() if _files()[name].parent.name == question}


def methods_of(question: str) -> set[str]:
    """The names of the parts that answer it: all parts of some kinds, and the parts that its recipes use and core recipes do not."""
    held, kinds = _held(question), _KINDS.get(question, set())
    whole = {entry.name for entry in catalogue().values() if entry.part and kinds & set(entry.bases)}
    return held if question == "core" else held - _held("core") | whole


@cache
def _held(question: str) -> set[str]:
    from gimbal.composition import Composition  # late: the recipes import torch

    return {type(part).__name__ for name in of(question) for part in Composition(function(name)()).parts}


def known(recipe: str) -> None:
    """ValueError if there is no recipe of this name."""
    if recipe not in names():
        way = "for a file write path/file.py:function" if recipe.endswith(".py") else "gimbal list recipes"
        raise ValueError(f"there is no recipe {recipe}{nearest(recipe, names())} ({way})")


def function(recipe: str) -> Callable[[], Any]:
    """The recipe of this name, or of ``pkg.module:function`` or ``path/file.py:function``."""
    if ":" in recipe:
        return resolve(recipe)
    known(recipe)
    place = _files()[recipe].relative_to(_HERE).with_suffix("").parts
    return vars(importlib.import_module(".".join(("gimbal.recipes", *place))))[recipe]


def warnings(run: Any, recipe: str) -> list[str]:
    """Warnings about a run, without those that its recipe raises as shipped: the recipe's docstring covers those."""
    from gimbal.composition import Advice  # late, as below
    from gimbal.runtime import compose, memory

    while recipe.endswith(FILES) and Path(recipe).is_file():
        recipe = str(read_file(Path(recipe)).get("recipe", ""))
    known = compose.verdicts(function(recipe)()) if recipe in names() else ()
    shipped = {verdict.reason for verdict in known if isinstance(verdict, Advice) and not verdict.always}
    return [sentence for sentence in (*compose.check(run), *memory.too_large(run)) if sentence not in shipped]


OWN = ("model", "policy", "tasks", "reward", "rewards")  # what a user provides


def default(overrides: Iterable[str]) -> str:
    """The recipe if none is named: the demo, or the closed loop for a model or tasks with no known good learning rate."""
    return "stable" if any(key.partition(".")[0] in OWN for key in overrides) else "demo"


def load(recipe: str, overrides: Mapping[str, Any] | None = None, notice: Callable[[str], None] = tell) -> Any:
    """The Run of a recipe, by name, by reference, or by a YAML or JSON file that names one, with overrides.

    A file contains ``recipe: NAME`` and overrides, nested or dotted, or is the saved recipe of a run.
    """
    # Late: they import torch, and --help does not.
    from gimbal.recipes.configure import configured
    from gimbal.runtime.run import AbstractRun

    if recipe.endswith(FILES):
        data = dict(read_file(Path(recipe)))
        if "run" in data:
            run = load_saved(Path(recipe), AbstractRun)[1]
        elif "recipe" not in data:
            raise ValueError(f"{recipe} names no recipe; it needs a line such as recipe: demo")
        else:
            if Path(recipe).resolve() in _reading:
                raise ValueError(f"{recipe} refers to itself as its recipe; name one of gimbal list recipes")
            _reading.append(Path(recipe).resolve())
            try:
                run = load(str(data.pop("recipe")), flatten(data), notice)
            finally:
                _reading.pop()
    else:
        try:
            run = function(recipe)()
        except Exception as error:  # a user's recipe can raise anything
            raise broken(recipe, error) from error
    if not isinstance(run, AbstractRun):
        raise ValueError(f"the recipe {recipe} returned {told(run)}; it must return a gimbal.Run")
    return configured(run, overrides or {}, notice)
