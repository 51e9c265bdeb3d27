"""gimbal list, gimbal show, and a recipe's page of fields."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

from gimbal.cli.words import parse, table, wrapped

LIST_HELP = """\
gimbal list recipes|methods|tasks [--for QUESTION]

  recipes            what gimbal train can train, grouped by the question that each recipe answers
  methods            every part that a recipe can use, grouped by kind; see `gimbal show NAME` for equation and fields
  tasks              sources of tasks
  --for QUESTION     only recipes or methods for this question; --for alone lists the questions"""

SHOW_HELP = """\
gimbal show NAME

Shows a method, task or recipe, or your own class (file.py:Class): equation, limiting cases, paper, fields and source location."""


def show_list(argv: Sequence[str]) -> int:
    kinds = {"recipes": list_recipes, "methods": list_methods, "tasks": list_tasks}
    if not argv or "--help" in argv:
        print(LIST_HELP)
        return 0
    if argv[-1] in ("--for", "--for="):
        from gimbal import recipes

        table(recipes.questions())
        return 0
    arguments = parse(argv, valued=("for",))
    question = arguments.flags.get("for")
    unknown = [f"--{key}" for key in arguments.overrides]
    if len(arguments.words) != 1 or arguments.words[0] not in kinds or unknown:
        raise ValueError(
            f"gimbal list takes one of {', '.join(kinds)}, and --for QUESTION; got {' '.join(argv) or 'nothing'}"
        )
    if arguments.words[0] == "tasks" and question is not None:
        raise ValueError("tasks are not grouped by question: gimbal list tasks")
    kinds[arguments.words[0]](question)
    return 0


def list_recipes(question: str | None = None) -> None:
    """Every recipe under the question that it answers, or those of one question."""
    from gimbal import recipes

    if question is None:
        print("start here")
        table(recipes.START)
    for one in recipes.questions() if question is None else [question]:
        recipes_of = recipes.of(one)
        print(f"{one}: {recipes.questions()[one]}")
        table(recipes_of)


def list_methods(question: str | None = None) -> None:
    """Every part with an interface, by kind, or the parts that recipes for one question add to the core; with the confidence in the
    source where it was not fully read.
    """
    from gimbal import config, recipes

    wanted = None if question is None else recipes.methods_of(question)
    for kind, entries in sorted(config.methods().items()):
        shown = {
            e.name: e.summary + (f" [{e.confidence}]" if e.confidence not in ("", "verified") else "")
            for e in entries
            if wanted is None or e.name in wanted
        }
        if shown:
            print(kind)
            table(shown)


def list_tasks(question: str | None = None) -> None:
    from gimbal import config
    from gimbal.environments.reasoning import names

    found = {e.name: e.summary for e in config.catalogue().values() if e.part and "AbstractTasks" in e.bases}
    print("your own: tasks=FILE or a Hub dataset (docs/data.md); `gimbal show NAME` lists the fields of each")
    table(dict(sorted(found.items())))
    print("\ntasks.name of ReasoningGym is one of")
    wrapped(names())


def show(argv: Sequence[str]) -> int:
    if "--help" in argv:
        print(SHOW_HELP)
        return 0
    if len(argv) != 1:
        raise ValueError("gimbal show takes the name of one method, task or recipe")
    import dataclasses
    import inspect
    import typing

    from gimbal import config, recipes
    from gimbal.config.expected import describe

    asked = argv[0]
    known = {name.lower(): name for name in [*config.catalogue(), *recipes.names()]}
    name = known.get(asked.lower()) or known.get(asked.lower().replace("_", ""))
    if name is None and ":" not in asked:
        near = [known[lower] for lower in known if asked.lower() in lower][:3]
        near = near or [known[lower] for lower in difflib.get_close_matches(asked.lower(), known, n=1)]
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"there is no {asked}{meant} (gimbal list methods, gimbal list recipes)")
    name = name or asked
    thing = recipes.function(name) if name in recipes.names() else config.find(name)
    file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    print(f"{name}\n\n{inspect.getdoc(thing) or ''}\n\n{thing.__module__}:{line}  {os.path.relpath(file or '')}")
    if not isinstance(thing, type):
        from gimbal.runtime.statement import statement  # late: a part needs no engine

        print(f"\n{statement(thing())}\n\n{config.dump(thing(), name)}", end="")
    elif dataclasses.is_dataclass(thing):
        hints = typing.get_type_hints(thing)
        print()
        table({item.name: f"{describe(hints[item.name])}{_default(item)}" for item in dataclasses.fields(thing)})
    return 0


def _default(item: object) -> str:
    import dataclasses

    assert isinstance(item, dataclasses.Field)
    if item.default is not dataclasses.MISSING:
        return f" = {item.default!r}"
    return "" if item.default_factory is dataclasses.MISSING else f" = {item.default_factory()!r}"


def described(part: type) -> str:
    """Its docstring, and those of its bases that explain fields it inherits."""
    import inspect

    def explains(base: type) -> bool:
        return bool(vars(base).get("__dataclass_fields__", {}).keys() & vars(base).get("__annotations__", {}).keys())

    bases = filter(explains, part.__mro__[1:])
    return "\n\n".join(filter(None, map(inspect.getdoc, (part, *bases))))


def fields_page(run: object, recipe: str) -> str:
    """What the recipe is, then every key of the run: path, value, type, comment; with each part its docstring. The run's own is long,
    and stands behind its keys."""
    import dataclasses
    import inspect
    import re
    import typing

    from gimbal import recipes
    from gimbal.config import paths
    from gimbal.config.expected import describe

    lines = [f"gimbal train {recipe} [key=value ...]"]
    if recipe in recipes.names():
        lines += ["", inspect.getdoc(recipes.function(recipe)) or ""]
    lines += [
        "",
        "Every key, with its value here. The last word is enough if no other key ends with it; `gimbal show NAME` explains a part.",
    ]
    for prefix, part in {"": run, **paths(run)}.items():
        if not dataclasses.is_dataclass(part) or isinstance(part, type):
            continue
        told = ["    " + x for x in described(type(part)).split("\n")]
        lines += ["", f"{prefix or 'run'}: {type(part).__name__}", *(told if prefix else [])]
        hints = typing.get_type_hints(type(part))
        source = "\n".join(inspect.getsource(cls) for cls in type(part).__mro__ if cls.__module__.startswith("gimbal."))
        for item in dataclasses.fields(part):
            value = vars(part)[item.name]
            shown = type(value).__name__ + "(...)" if dataclasses.is_dataclass(value) else repr(value)
            comment = re.search(rf"^ +{item.name}: .*?  (# .*)$", source, re.MULTILINE)
            key = f"{prefix}.{item.name}".lstrip(".")
            lines.append(f"  {key} = {shown}  ({describe(hints[item.name])}){'  ' + comment[1] if comment else ''}")
        lines += [] if prefix else ["", *told]
    return "\n".join(lines)
