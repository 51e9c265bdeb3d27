"""Errors in a user's own part: its name, the error, and the line of the user's file, in one sentence."""

from __future__ import annotations

import inspect
import math
import re
import sysconfig
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from traceback import walk_tb
from types import FrameType, FunctionType
from typing import Any, TypeVar

from gimbal.config.classes import PACKAGE

MOST_TOLD = 300  # characters shown of an error's message, and of a value
# Of a reward and of a number of an observation: the sum of 10^8 squares of such is still finite in float32.
LARGEST = 1e15
# Also those that turn a line around.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


Live = TypeVar("Live")


class OwnError(ValueError):
    """A user's part raised, or returned what its kind must not return."""


def fault(error: BaseException, keys: Mapping[str, str] = {}) -> str:
    """What user code raised and where; "" for gimbal's own errors, gimbal's refusals of what it was given, and running out of
    memory anywhere.

    ``keys``: from the name of a part to the run's key that holds it.
    """
    if isinstance(error, OwnError) or not isinstance(error, Exception | SystemExit):
        return str(error) if isinstance(error, OwnError) else ""
    if out_of_memory(error) or type(error).__module__.startswith("gimbal."):  # their messages say enough
        return ""
    frames = list(walk_tb(error.__traceback__))
    if isinstance(error, TypeError) and frames and not _users(frames[-1][0]) and (misfit := _misfit(str(error))):
        return misfit
    theirs = [frame for frame, _ in frames if _users(frame)]
    if not theirs or (isinstance(error, ValueError) and _within(frames[-1][0], PACKAGE)):
        return ""
    name = _part(theirs[0])
    key = f" ({keys[name]})" if name in keys else ""
    return f"{name}{key} raised {raised(error)}"


def raised(error: BaseException) -> str:
    """The error and its message, with the last line of user code in its traceback, if any."""
    said = f"{type(error).__name__}: {visible(message(error))[:MOST_TOLD]}".removesuffix(": ")
    lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__) if _users(frame)]
    return f"{said} ({Path(lines[-1][0]).name}, line {lines[-1][1]})" if lines else said


def message(error: BaseException) -> str:
    """Its message in one line."""
    try:
        words = str(error).encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be written anywhere
    except Exception as own:  # whatever its __str__ raises
        words = f"(its own message raised {type(own).__name__})"
    return " ".join(words.split())


def visible(text: str) -> str:
    """Text from outside made safe for a terminal: control characters, which could move its cursor or clear it, are dots; line breaks
    and tabs stay."""
    return CONTROL.sub("\u00b7", text)


def out_of_memory(error: BaseException) -> bool:
    said = isinstance(error, RuntimeError) and re.search("out of memory|allocate memory", str(error))
    return isinstance(error, MemoryError) or bool(said)


def wrong(part: Any, method: str, got: Any, wanted: str, verb: str = "return") -> OwnError:
    """The refusal of what a part's method returned. ``wanted``: what it should return, as the end of "it must return ..."."""
    where = next(filter(None, (_line(vars(kind).get(method)) for kind in type(part).__mro__)), "")
    call = "" if method == "__call__" else f".{method}"
    return OwnError(f"{type(part).__name__}{call}{where} {verb}ed {told(got)}; it must {verb} {wanted}")


def started(spec: Any, kind: type[Live], *given: Any) -> Live:
    """The live half of a curriculum, a budget, ...; anything else that its ``start`` returns is refused."""
    live = spec.start(*given)
    if not isinstance(live, kind):
        raise wrong(spec, "start", live, f"its live half, which is an {kind.__name__} (from {kind.__module__})")
    return live


def numbers(part: Any, found: Any) -> dict[str, float]:
    """The metrics of a part as numbers by name; anything else is refused, with its key."""
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise wrong(part, "metrics", found, "a dict of numbers by name")
    checked: dict[str, float] = {}
    for name, value in found.items():
        try:
            checked[name] = float("text" if isinstance(value, str | bytes) else value)
        except (TypeError, ValueError) as error:
            raise wrong(part, "metrics", {name: value}, f"a number for each name, and {name!r} is none") from error
    return checked


def shaped(part: Any, value: Any, like: Any) -> Any:
    """The tensor that a part returned, one number per decision like ``like``; anything else is refused."""
    from torch import Tensor  # late: --help does not need it

    if not isinstance(value, Tensor) or value.shape != like.shape:
        raise wrong(
            part, "__call__", value, f"a tensor of one number for each decision, here of shape {list(like.shape)}"
        )
    return value


def learnable(value: Any) -> float | None:
    """A reward as a number that can be learned from: finite, and of size ``LARGEST`` at most; None for anything else, text too."""
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST else None  # nan is not


def told(value: Any) -> str:
    """A value for a message: a tensor or an array by its shape, a record by its class, a huge number by its digits."""
    kind = type(value).__name__
    one = f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{one} of shape {list(value.shape)}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"{one} of some {math.log10(abs(value)):.0f} digits"
    text = repr(value)
    return text if len(text) <= MOST_TOLD // 4 else one


def some(names: Sequence[str]) -> str:
    """The first three of these names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def is_own(file: str) -> bool:
    """Whether it is the user's file: not gimbal's, Python's or an installed package's, and not generated ("<string>")."""
    if file.startswith("<") and not file.startswith("<ipython"):
        return False
    return not any(file.startswith(f"{place}/") for place in (PACKAGE, *_INSTALLED))


def _misfit(said: str) -> str:
    """A user's method that has other parameters than gimbal calls it with, from Python's words for that: no line of it was executed."""
    found = re.match(r"(?P<name>[\w.<>]+)\.(?P<method>\w+)\(\) (?P<what>(takes|missing|got) .*)", said)
    if found is None:
        return ""
    for kind in _under(ABC):  # every interface of gimbal's is abstract
        if kind.__qualname__ == found["name"]:
            own, given = (
                vars(one).get(found["method"]) for one in (kind, next(_interfaces(kind, found["method"]), object))
            )
            if isinstance(own, FunctionType) and is_own(own.__code__.co_filename) and isinstance(given, FunctionType):
                must = ", ".join(inspect.signature(given).parameters)
                return f"{kind.__name__}.{found['method']}{_line(own)} {found['what']}; its parameters must be ({must})"
    return ""


def _under(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _under(one)


def _interfaces(kind: type, method: str) -> Iterator[type]:
    """gimbal's classes above it that say which parameters the method has."""
    return (one for one in kind.__mro__ if one.__module__.startswith("gimbal.") and method in vars(one))


def _line(method: object) -> str:
    """Where it is defined; "" for what is not written in Python."""
    whole = inspect.unwrap(method) if callable(method) else None
    code = whole.__code__ if isinstance(whole, FunctionType) else None
    return "" if code is None else f" ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _users(frame: FrameType) -> bool:
    return is_own(frame.f_code.co_filename)


def _within(frame: FrameType, place: Path) -> bool:
    return frame.f_code.co_filename.startswith(f"{place}/")


def _part(frame: FrameType) -> str:
    """Whose code this is: the class of the object, else the function."""
    return type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else frame.f_code.co_name
