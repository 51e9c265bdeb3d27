"""What a Python function tells a model of itself: the JSON schema of its signature, as chat templates and OpenAI's clients have it."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
SECTION = re.compile(r"^(\w+):\s*$")  # of a docstring: Args:, Returns:
GOOGLE = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?:\s+(.+)$")  # limit (int): how many
SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")  # :param int limit: how many


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """{"type": "function", "function": {name, description, parameters}}: types and defaults of the signature, words of the docstring.

    A parameter without a default is required. ValueError, in one sentence, for a signature that has no schema.
    """
    name = named(function)
    hints = parameters(function)
    summary, told = described(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        one = _of(hints[parameter.name], f"{name}({parameter.name})")
        if parameter.name in told:
            one["description"] = told[parameter.name]
        if parameter.default is not inspect.Parameter.empty:
            one["default"] = _default(parameter.default, f"{name}({parameter.name})")
        properties[parameter.name] = one
    required = [each for each, one in properties.items() if "default" not in one]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": summary,
            "parameters": {"type": "object", "properties": properties, "required": required},
        },
    }


def named(function: Any) -> str:
    """Its name; a ValueError for what is no function."""
    if not inspect.isfunction(function):
        raise ValueError(
            f"a tool is a Python function (def search(query: str) -> str), and {str(function)[:60]} is a {type(function).__name__}"
        )
    if function.__name__ == "<lambda>":
        raise ValueError("a tool has a name, which a lambda has not: write def NAME(...)")
    return function.__name__


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The type of each parameter."""
    name = named(function)
    try:
        hints = get_type_hints(function)
    except Exception as error:  # an annotation that is text may raise anything when it is evaluated
        raise ValueError(f"the types of {name} cannot be read: {error}") from error
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        where = f"{name}({parameter.name})"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind == parameter.VAR_POSITIONAL else "**"
            raise ValueError(f"{name} takes {stars}{parameter.name}, which has no schema: name each parameter")
        if parameter.kind == parameter.POSITIONAL_ONLY:
            raise ValueError(f"{where} is positional only, and a model calls by name: take the / out")
        if parameter.name not in hints:
            raise ValueError(
                f"{where} has no type: write {parameter.name}: str, int, float, bool, a Literal, list or dict"
            )
        found[parameter.name] = hints[parameter.name]
    return found


def _of(kind: Any, where: str) -> dict[str, Any]:
    origin, inside = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if kind is Any:
        return {}
    if origin is Literal and len({type(choice) for choice in inside}) == 1 and type(inside[0]) in PLAIN:
        return {"type": PLAIN[type(inside[0])], "enum": list(inside)}
    if kind is list or origin in (list, Sequence):
        return {"type": "array", **({"items": _of(inside[0], where)} if inside else {})}
    if kind is dict or (origin in (dict, Mapping) and inside[0] is str):
        return {"type": "object", **({"additionalProperties": _of(inside[1], where)} if inside else {})}
    if origin in (Union, types.UnionType):
        kinds = [each for each in inside if each is not type(None)]
        some = [_of(each, where) for each in kinds]
        one = some[0] if len(some) == 1 else {"anyOf": some}
        return {**one, "nullable": True} if len(kinds) < len(inside) else one
    raise ValueError(
        f"{where} is of the type {inspect.formatannotation(kind)}, which has no schema here: use str, int, float, bool, a Literal, "
        "list[...], dict[str, ...], or one of these or None"
    )


def _default(value: Any, where: str) -> Any:
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:  # what json raises for what it cannot write
        raise ValueError(f"the default of {where} is {str(value)[:60]}, which JSON does not hold: {error}") from error


def described(text: str) -> tuple[str, dict[str, str]]:
    """(What stands before the first section, what is said of each parameter) of a docstring in Google's or Sphinx's style."""
    before: list[str] = []
    told: dict[str, str] = {}
    section, newest = "", ""
    for line in text.splitlines():
        bare = line.strip()
        if found := SPHINX.match(bare):
            section, newest = "args", found[1]
            told[newest] = found[2]
        elif bare.startswith(":") and SECTION.match(bare) is None:
            section, newest = "other", ""  # :return: and the like
        elif line == line.lstrip() and (found := SECTION.match(bare)):
            section, newest = found[1].lower(), ""
        elif not section:
            before.append(bare)
        elif section in ("args", "arguments", "parameters") and bare:
            found = GOOGLE.match(bare)
            if found and not (newest and _deeper(line, text, newest)):
                newest = found[1].lstrip("*")
                told[newest] = found[2]
            elif newest:
                told[newest] = f"{told[newest]} {bare}".strip()
    return " ".join(" ".join(before).split()), told


def _deeper(line: str, text: str, newest: str) -> bool:
    """Whether a line is indented further than the one that names the newest parameter: it goes on about that one."""
    first = next(each for each in text.splitlines() if each.strip().lstrip("*").startswith(newest))
    return len(line) - len(line.lstrip()) > len(first) - len(first.lstrip())
