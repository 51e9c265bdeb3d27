"""Parts by name: a catalogue of every class in the package, and conversion between parts and plain data.

A part is a dataclass; as plain data it is ``{"class": NAME, field: value, ...}``, where NAME is the class's name if it is one of
gimbal's and ``module:Class`` (or ``/path/file.py:Class``) otherwise. One reader types values from a shell, a YAML file or Python.

Command-line values are read here, not by an argument parser, because they are data of any depth (a constructor call
in a list), may begin with a dash, and a refusal must name the dotted path.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import math
import os
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gimbal.config.classes import PACKAGE, catalogue, nearest
from gimbal.config.expected import at_commas, expected, fitting, quoted

RECIPE_FILE = "recipe.yaml"  # in a run's directory
REFERENCE = re.compile(r"[^:()\[\]{}'\"=]+:[A-Za-z_]\w*")  # pkg.module:name or path/file.py:name, nothing else
# A reward with a weight: mine.py:score*0.7.
WEIGHTED = re.compile(rf"({REFERENCE.pattern})(?:\*([-+]?[\d.]+(?:e[-+]?\d+)?))?")
# Kinds of parts with short forms (a function, a file name), and what turns these into a part; other values pass unchanged.
SHORT = {
    "AbstractReward": "gimbal.rewards.function:short",
    "AbstractTasks": "gimbal.environments.forms:short",
    "AbstractEnvironmentSpec": "gimbal.environments.functions:short",
    "AbstractPolicySpec": "gimbal.policies.token:short",
    "AbstractRuntimeSpec": "gimbal.runtime.base:short",
    "AbstractWorkflow": "gimbal.workflows.agent:short",
    "HeldOut": "gimbal.runtime.run:short",
}
FLOATS = ("inf", "infinity", "nan")  # numbers written as names
YAML = {"true": True, "false": False, "none": None, "null": None}  # as typed, inside or outside a part
MOST_SHOWN = 80  # characters shown of a refused value
MOST = 3.4e38  # largest finite number: float32's, since it may become one
_LOADING: list[Path] = []  # user files being imported, innermost last


class Text(str):
    """Typed text: "3" may still become a number, and "None" None. A plain str is a string."""


def find(name: str) -> Any:
    """The class of this name: gimbal's, or ``module:Class`` for your own."""
    if ":" in name:
        return resolve(name)
    if name not in catalogue():
        parts = [entry.name for entry in catalogue().values() if entry.part]
        raise ValueError(
            f"gimbal has no part called {name}{nearest(name, parts)} (write your own as file.py:{name}() or pkg.module:{name}(), "
            "and text inside a part in quotes)"
        )
    return vars(importlib.import_module(catalogue()[name].module))[name]


def resolve(reference: str) -> Any:
    """What ``pkg.module:name`` or ``path/file.py:name`` refers to."""
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise ValueError(f"{reference!r} is not a reference; write pkg.module:name or path/file.py:name")
    if place == "__main__" and name not in vars(sys.modules[place]):
        raise ValueError(
            f"{name} was defined in a notebook or an interactive session and exists only there: continue in that session, or "
            f"put it into a file and replace {reference} with path/file.py:{name} in {RECIPE_FILE}"
        )
    module = imported(place, reference)
    if name not in vars(module):
        raise ValueError(f"{place} has no {name}{nearest(name, vars(module))}")
    return vars(module)[name]


def imported(place: str, reference: str) -> types.ModuleType:
    """The module part of a reference: ``path/file.py`` or ``pkg.module``."""
    try:
        return _load_file(Path(place)) if place.endswith(".py") else _import_here(place)
    except ModuleNotFoundError as error:
        raise ValueError(f"{reference}: there is no module {error.name}") from error
    except Exception as error:  # a user's module can raise anything
        raise broken(reference, error) from error


def broken(reference: str, error: Exception) -> ValueError:
    """The refusal of user code that raised: what and where; our own errors need no addition."""
    file, line = traceback.extract_tb(error.__traceback__)[-1][:2]
    if isinstance(error, ValueError) and PACKAGE in Path(file).parents:
        return ValueError(str(error))
    said = str(error)
    if isinstance(error, SyntaxError):  # its message already has file and line
        file, line, said = error.filename or file, error.lineno, error.msg
    # Called with the wrong arguments.
    where = "" if PACKAGE in Path(file).parents else f" ({Path(file).name}, line {line})"
    return ValueError(f"{reference} raises {type(error).__name__}: {said}{where}")


def _import_here(module: str) -> types.ModuleType:
    """Import with the working directory at the end of the search path, which a console script lacks."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(module)


@contextlib.contextmanager
def loading(path: Path) -> Iterator[None]:
    """While a user's file is imported for its definitions. A script that trains on import would start another run each time."""
    _LOADING.append(path)
    try:
        yield
    finally:
        _LOADING.pop()


def refuse_while_loading() -> None:
    """ValueError while a script is being imported for one of its functions or classes."""
    if _LOADING:
        raise ValueError(
            f"{_LOADING[-1].name} starts a run when it is imported; put the call to gimbal.train under "
            "if __name__ == '__main__':"
        )


def main_file() -> Path | None:
    """The script that this process runs; None in a notebook and at a prompt."""
    file = vars(sys.modules["__main__"]).get("__file__")
    return Path(file).resolve() if file else None


_FILES = threading.RLock()  # a file may load another


def _load_file(path: Path) -> types.ModuleType:
    """The module of a file, named by its absolute path, so that its classes record where to find them again."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if path == main_file():
        return sys.modules["__main__"]  # importing again would run it again and create other classes
    with _FILES:  # environments open in threads: none may find a module that another is still running
        if str(path) not in sys.modules:
            import cloudpickle  # late: --help does not need it

            spec = importlib.util.spec_from_file_location(str(path), path)
            assert spec is not None and spec.loader is not None
            # Dataclasses look up their module here while it runs.
            module = sys.modules[str(path)] = importlib.util.module_from_spec(spec)
            if str(path.parent) not in sys.path:
                sys.path.append(str(path.parent))  # so that it can import its neighbours, like a script
            try:
                with loading(path):
                    spec.loader.exec_module(module)
                cloudpickle.register_pickle_by_value(module)  # other processes cannot import a module of this name
            except BaseException:
                del sys.modules[str(path)]
                raise
    return sys.modules[str(path)]


def shown(value: Any) -> str:
    """A value for a message, as given, shortened."""
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__qualname__}"
    text = str(value) if isinstance(value, Text) and value else repr(value)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."


def label(thing: type | Callable[..., Any]) -> str:
    """The name by which ``find`` and ``resolve`` return to a class or function."""
    module, name = thing.__module__, thing.__qualname__
    if name in catalogue() and catalogue()[name].module == module:
        return name
    if not at_top(thing):
        raise ValueError(
            f"{module}.{name} cannot be saved with the run; define it at the top level of a module, under its own name"
        )
    if module == "__main__" and (script := main_file()) is not None:
        spec = sys.modules[module].__spec__  # for python -m pkg.module: the path would lose its relative imports
        module = str(script) if spec is None else spec.name
    return f"{module}:{name}"


def at_top(thing: type | Callable[..., Any]) -> bool:
    """Whether its module has it under its name: not local to a function, a method, a lambda, or shadowed by another."""
    held = sys.modules.get(thing.__module__)
    return held is not None and vars(held).get(thing.__qualname__) is thing


def plain(value: Any) -> Any:
    """A part as data for YAML and JSON; ``read`` is the inverse."""
    value = unboxed(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((f.name, vars(value)[f.name]) for f in dataclasses.fields(value) if f.init)
        return {"class": label(type(value)), **{name: plain(item) for name, item in named}}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return label(value)
    raise ValueError(
        f"a {type(value).__name__} cannot be saved with the run; a part's fields are plain values or parts"
    )


def unboxed(value: Any) -> Any:
    """A NumPy or torch scalar or array as Python numbers; anything else unchanged."""
    foreign = type(value).__module__.partition(".")[0] in ("numpy", "torch") and hasattr(value, "tolist")
    return value.tolist() if foreign else value


def read(value: Any, annotation: Any, path: str = "") -> Any:
    """A value of this type, from plain data or typed Text; unchanged if it already fits."""
    value = unboxed(value)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _read_union(value, arguments, path)
    if annotation in (None, type(None)):
        if value is None or (isinstance(value, Text) and value.lower() in ("none", "null")):
            return None
    elif annotation in (Any, object):
        return _literal(value)
    elif origin is Literal:
        for choice in arguments:
            if str(choice) == str(value):
                return choice
        raise ValueError(f"{path} is {shown(value)}; it must be one of {', '.join(map(str, arguments))}")
    elif origin is tuple:
        return _read_tuple(value, arguments, path)
    elif origin in (Sequence, list):
        return list(_read_tuple(value, (*arguments, ...), path))
    elif origin in (Mapping, dict):
        data = expression(value, path, expected(annotation, path)) if isinstance(value, Text) else value
        if isinstance(data, Mapping) and not isinstance(data.get("class"), type):  # otherwise a constructor was typed
            return {str(key): read(item, arguments[1], f"{path}.{key}") for key, item in data.items()}
    elif origin is Callable:
        if isinstance(value, Mapping) and "class" in value:  # a callable part
            return _read_part(value, object, path)
        if isinstance(value, str) or callable(value):
            return resolve(value) if isinstance(value, str) else value
    elif annotation in _SCALARS:
        result = _SCALARS[annotation](value)
        if result is not None:
            return result
    else:
        return _read_part(value, annotation, path)
    raise ValueError(f"{path} is {shown(value)}; it must be {expected(annotation, path)}")


def _bool(value: Any) -> bool | None:
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "on": True, "off": False}
    return value if isinstance(value, bool) else words.get(value.lower()) if isinstance(value, str) else None


def _float(value: Any) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None  # the caller reports what was expected
    return number if math.isinf(number) or abs(number) <= MOST else None  # nan is neither


def _int(value: Any) -> int | None:
    """No field needs an integer above 63 bits, and torch and NumPy cannot hold one."""
    number: int | None = None
    if isinstance(value, int | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError):  # 1e6 counts as an integer
            number = int(value)  # exact, unlike a float
    if number is None:
        real = _float(value)
        number = int(real) if real is not None and real.is_integer() else None
    return number if number is not None and abs(number) < 2**63 else None


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: lambda value: str(value) if isinstance(value, str) else None,
    Path: lambda value: Path(value) if isinstance(value, str | Path) else None,
}


def _literal(value: Any) -> Any:
    """Typed text as the Python or YAML literal it looks like, else as a string. Containers come as they would be read
    back: a tuple is a list."""
    if isinstance(value, Text):
        if value.lower() in YAML:
            return YAML[value.lower()]
        try:
            value = ast.literal_eval(value)
        except (
            ValueError,
            SyntaxError,
            TypeError,
            MemoryError,
            RecursionError,
        ):  # raised for text that is not a literal
            return str(value)
    return plain(value) if isinstance(value, list | tuple | Mapping) else value


def _read_union(value: Any, members: tuple[Any, ...], path: str) -> Any:
    """The first member that fits the value; otherwise the refusal of the last one that is not None, which names what was expected."""
    refusal = None
    # A string accepts anything, so it comes late; but before a function, whose reference is saved as given: resolved here it
    # would be a function of a module that other processes cannot import.
    late = {str: 1}
    for member in sorted(
        members, key=lambda m: (m is not type(None), 2 if get_origin(m) is Callable else late.get(m, 0))
    ):
        try:
            return read(value, member, path)
        except ValueError as error:
            refusal = error if member is not type(None) else None
    assert refusal is not None
    raise refusal


def _read_tuple(value: Any, arguments: tuple[Any, ...], path: str) -> tuple[Any, ...]:
    item = arguments[0]
    if isinstance(value, Text):
        value = _typed_items(value, item, path)
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    types_ = (item,) * len(items) if arguments[-1] is Ellipsis else arguments
    if len(types_) != len(items):
        raise ValueError(f"{path} is {value!r}; it must hold {len(types_)} values")
    return tuple(read(x, t, f"{path}.{i}") for i, (x, t) in enumerate(zip(items, types_, strict=True)))


def _typed_items(text: Text, item: Any, path: str) -> Any:
    """The items of a typed list. A single string needs no brackets or quotes, and neither do one or several references:
    stop=END reward=mine.py:score reward=mine.py:score*0.7,ExactAnswer()"""
    if (item is str and not text.startswith(("(", "["))) or WEIGHTED.fullmatch(text):
        return (text,)
    pieces = at_commas(text)
    if any(WEIGHTED.fullmatch(piece) for piece in pieces):
        return tuple(Text(piece) for piece in pieces if piece)
    return expression(text, path, expected(tuple[item, ...], path), fitting(item) if isinstance(item, type) else ())


def _read_part(value: Any, base: type, path: str) -> Any:
    value = _long(value, base)
    data = value
    for _ in range(2):  # quotes that survive the shell add a layer: 'mine.py:Count()'
        data = (
            _long(expression(data, path, expected(base, path), fitting(base)), base) if isinstance(data, str) else data
        )
    if isinstance(data, Mapping):
        cls = data.get("class", base)
        cls = find(cls) if isinstance(cls, str) else cls
        data = _build(cls, {name: item for name, item in data.items() if name != "class"}, path)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        data = _checked(data, path)
    if not isinstance(data, base):
        if isinstance(data, type) and issubclass(data, base):
            raise ValueError(f"{path} is the class {data.__name__}; a run holds a part, made of it: {data.__name__}()")
        made = dataclasses.is_dataclass(data) and not isinstance(data, type)
        got = _kind(data) if made else shown(data)
        raise ValueError(f"{path} is {got}; it must be {expected(base, path)}")
    return data


def _kind(part: Any) -> str:
    """Its class, and its kind where another kind is wanted: Allocated is a curriculum, not a budget."""
    name = type(part).__name__
    bases = catalogue()[name].bases if name in catalogue() else ()
    if "AbstractPart" not in bases[1:]:
        return name
    # The base nearest to all parts: between it and the class may be one for parts that are made alike.
    kind = bases[bases.index("AbstractPart") - 1].removeprefix("Abstract").removesuffix("Spec")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()
    return f"{name} ({'an' if words[0] in 'aeiou' else 'a'} {words})"


def _long(value: Any, base: type) -> Any:
    """Turn a short form into a part of this kind, or into its constructor's text."""
    if base.__name__ not in SHORT:
        return value
    module, name = SHORT[base.__name__].split(":")
    return vars(importlib.import_module(module))[name](value)


def _checked(part: Any, path: str) -> Any:
    """A part made in Python with every field converted to its type, as if saved and read again."""
    hints, held = get_type_hints(type(part)), {f.name: vars(part)[f.name] for f in dataclasses.fields(part) if f.init}
    fields = {name: read(value, hints[name], f"{path}.{name}" if path else name) for name, value in held.items()}
    changed = {name: value for name, value in fields.items() if value is not held[name] and value != held[name]}
    return dataclasses.replace(part, **changed) if changed else part


def _build(cls: Any, given: Mapping[str, Any], path: str) -> Any:
    abstract = sorted(vars(cls).get("__abstractmethods__", ())) if isinstance(cls, type) else []
    if abstract and cls.__name__.startswith("Abstract"):  # only fields were given
        raise ValueError(f"{path} names no class; it must be {expected(cls, path)}")
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        name = cls.__name__ if isinstance(cls, type) else ""
        way = (
            f"put @dataclass(frozen=True, kw_only=True) above class {name}"
            if name
            else "a part is a dataclass, and its class is named here"
        )
        raise ValueError(f"{path}: {name or shown(cls)} is not a part; {way}")
    if abstract:
        raise ValueError(
            f"{path}: {cls.__name__} lacks {', '.join(abstract)}, which every part of its kind has; add it"
        )
    hints, known = get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls) if f.init}
    for name in given:
        if name not in known:
            raise ValueError(f"{path and path + ': '}{cls.__name__} has no field {name}{nearest(name, known)}")
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in given:
            raise ValueError(f"{path}: {cls.__name__} needs {name}; write {cls.__name__}({name}=...)")
    return cls(**{name: read(item, hints[name], f"{path}.{name}" if path else name) for name, item in given.items()})


def expression(text: str, path: str, way: str, likely: Iterable[str] = ()) -> Any:
    """Plain data from a literal or a constructor call such as ``SequenceRatio(clip_low=3e-4)``; parsed, never evaluated.

    ``way``: what the key expects, reported if the text is neither or is a bare name of no part; ``likely``: candidates for what
    such a name was meant to be.
    """
    if re.fullmatch(r"[A-Za-z_][\w.]*", text) and text not in (*catalogue(), "None", "True", "False", "inf"):
        raise ValueError(f"{path}={text}{nearest(text, likely)}; it must be {way}")
    own = re.fullmatch(r"([^\s:()\[\]{}]+:[A-Za-z_]\w*)(\(.*\))?", text, re.DOTALL)
    source = "OWN" + quoted(own[2] or "()") if own else quoted(text)
    try:
        return _data(ast.parse(source.strip(), mode="eval").body, own[1] if own else "")
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:  # the last two for deep nesting
        detail = f": {error}" if isinstance(error, TypeError) else ""
        raise ValueError(f"{path}={text:.200} cannot be read{detail}; it must be {way}") from error


def _data(node: ast.expr, own: str) -> Any:
    """Raises TypeError for anything that is not allowed."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _data(node.operand, own)
        if isinstance(number, int | float):
            return -number
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(_data(item, own) for item in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return {_data(key, own): _data(item, own) for key, item in pairs if key is not None}
    if isinstance(node, ast.Name) and node.id in YAML:
        return YAML[node.id]
    if isinstance(node, ast.Name) and node.id.lower() in FLOATS:
        return float(node.id)  # if the field accepts no nan, its type's reader reports that with the field's name
    if isinstance(node, ast.Name):
        return {"class": find(own if node.id == "OWN" else node.id)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        cls = find(own if node.func.id == "OWN" else node.func.id)
        names = [f.name for f in dataclasses.fields(cls) if not f.kw_only] if dataclasses.is_dataclass(cls) else []
        if len(node.args) > len(names):
            raise TypeError(f"{cls.__name__} takes its fields by name")
        given = [*zip(names, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
        if None not in dict(given) and len(dict(given)) == len(given):
            return {"class": cls, **{str(name): _data(item, own) for name, item in given}}
    raise TypeError("only literals and constructors of parts are understood")
