"""What a key expects, in words, for help pages and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from gimbal.config.aliases import names_of
from gimbal.config.classes import catalogue

SCALARS = {
    float: "a number, such as 0.5",
    int: "a whole number, such as 8",
    bool: "true or false",
    str: "text",
    Path: "a path",
}
# Kinds of parts that are usually given in a short form.
KINDS = {
    "AbstractReward": "a function (reward=mine.py:score), several with weights (reward=mine.py:score*0.7,mine.py:brevity*0.3), "
    "or a gimbal reward (reward='ExactAnswer()'; gimbal list methods); in Python also the function itself, without quotes",
    "AbstractTasks": "a data file (rows.jsonl), a directory of them, a Hub dataset (openai/gsm8k), or tasks such as "
    "ReasoningGym(name='chain_sum') (gimbal list tasks)",
    "AbstractRuntimeSpec": "local or ray",
    "Devices": "numbers of GPUs, as devices='Devices(learner=1, samplers=1)'; CUDA_VISIBLE_DEVICES says which (docs/devices.md)",
    "AbstractObjective": "an objective, such as objective='ClippedRatio()' or objective='Reinforce()' (gimbal list methods)",
    "AbstractAdvantage": "an estimator, such as advantage='GroupNormalized()' or advantage='LeaveOneOut()' (gimbal list methods)",
    "AbstractAggregation": "TokenMean(), SequenceMean(), SequenceSum() or ConstantMean(length=...)",
    "HeldOut": "a share or a number of the tasks (held_out=0.1, held_out=200), a split of them (held_out=test), a data file "
    "(held_out=heldout.jsonl), or HeldOut(tasks=..., samples=4)",
}
# Data files, by suffix.
DATA_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
ROWS = names_of("tasks", "held_out")  # keys that take rows
NAMED = 6  # most parts of a kind named in a message


def is_mixture(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping gives files or datasets weights, rather than a part's fields: {gsm8k.jsonl: 0.7, owner/code: 0.3}."""
    named = all(isinstance(key, str) and ("/" in key or key.endswith(DATA_FILES)) for key in value)
    return bool(value) and named and all(isinstance(item, int | float) for item in value.values())


def is_columns(value: Mapping[Any, Any], path: str) -> bool:
    """Whether a mapping given for data holds its columns, and not a part's fields: {"prompt": [...], "answer": [...]}."""
    data = path.rpartition(".")[2] in ROWS or path in ROWS
    return (
        data
        and bool(value)
        and "tasks" not in value
        and all(isinstance(items, list | tuple) for items in value.values())
    )


def describe(annotation: Any) -> str:
    """An annotation as in a signature: ``float``, ``int | None``, ``tuple[AbstractReward, ...]``."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", str(annotation))


def expected(annotation: Any, path: str) -> str:
    """What to type for the key ``path``: the end of "it must be ..."."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in SCALARS:
        return SCALARS[annotation]
    if origin is Callable:
        return "a function: path/file.py:name or pkg.module:name"
    if origin in (tuple, list, Sequence):
        return expected(arguments[0], path) if arguments[0] not in SCALARS else f"a list, such as {path}='(1, 2)'"
    if origin in (Mapping, dict):
        return f"a mapping: set an entry with {path}.NAME=VALUE, or all of them with {path}=\"{{'NAME': VALUE}}\""
    if not isinstance(annotation, type):
        return describe(annotation)
    if annotation.__name__ in KINDS:
        return KINDS[annotation.__name__]
    names = fitting(annotation)
    if not names:
        return f"{annotation.__name__}(...), whose fields `gimbal show {annotation.__name__}` lists"
    more = " and others (gimbal list methods)" if len(names) > NAMED else ""
    return f"one of {', '.join(names[:NAMED])}{more}, such as {path}='{names[0]}()', or your own, {path}='file.py:Class(field=value)'"


def fitting(kind: type) -> list[str]:
    """The names of gimbal's parts of this kind."""
    kinds = set(_kinds(kind))
    return sorted(entry.name for entry in catalogue().values() if entry.part and kinds & set(entry.bases))


def _kinds(kind: type) -> Iterator[str]:
    """Its name and its kinds' names: a tool is also an environment."""
    yield kind.__name__
    for narrower in kind.__subclasses__():
        if narrower.__name__.startswith("Abstract"):
            yield from _kinds(narrower)


# Your own classes and functions, and data files: mine.py:Count, pkg.mod:score*0.7, heldout.jsonl.
OWN = re.compile(
    r"(?<![\w./~-])[A-Za-z_.~/][\w.~/+@-]*(:[A-Za-z_]\w*(\*[-+.\de]+)?|\.(jsonl?|ndjson|csv|tsv|parquet)\b(?!:))"
)


def quoted(text: str) -> str:
    """The text with quotes around each of your own classes, functions and files, so that they are read as if typed alone:
    ``Dialogue(tool=mine.py:Count(to=3))`` is ``Dialogue(tool='mine.py:Count(to=3)')``.
    """
    result, at, quote = "", 0, ""
    while at < len(text):
        letter = text[at]
        found = None if quote or not at else OWN.match(text, at)  # the whole text is not an argument
        if found:
            end = _closing(text, found.end())
            result, at = result + repr(text[at:end]), end
            continue
        if letter in "'\"":
            quote = "" if letter == quote else quote or letter
        taken = 2 if quote and letter == "\\" else 1  # a character after a backslash does not end a string
        result, at = result + text[at : at + taken], at + taken
    return result


def _closing(text: str, at: int) -> int:
    """The position after the brackets that open here; the position itself if none open."""
    depth, quote = 0, ""
    for place in range(at, len(text)):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if depth <= 0:
            return place + 1 if place > at or letter in "([{" else at
    return at


def at_commas(text: str) -> list[str]:
    """The text split at commas outside brackets and quotes."""
    pieces, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        depth += (letter in "([{") - (letter in ")]}") if not quote else 0
        if letter == "," and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]
