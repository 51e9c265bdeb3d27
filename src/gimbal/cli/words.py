"""Parsing a command line, and tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Arguments:
    """A parsed command line: ``key=value`` and ``--key value`` are overrides unless the command knows the flag."""

    words: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    dashed: dict[str, str] = field(default_factory=dict)  # overrides given as --KEY, as typed


def parse(argv: Sequence[str], switches: Sequence[str] = (), valued: Sequence[str] = ()) -> Arguments:
    from gimbal.config.parts import Text

    result, rest = Arguments(), list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            key, equals, value = word.partition("=")
            if not equals:
                result.words.append(word)
                continue
        else:
            key, equals, value = word[2:].partition("=")
            if key in switches:
                result.flags[key] = value
                continue
            if not equals:
                # Our own flags need a value; a lone --checkpointing means true.
                alone = not rest or rest[0].startswith("--")
                if alone and key in valued:
                    raise ValueError(f"--{key} needs a value")
                value = "true" if alone else rest.pop(0)
            if key not in valued:
                typed, key = key, key.replace("-", "_")
                result.dashed[key] = typed
        if not key:
            raise ValueError(f"{word!r} has no key; write key=value")
        into = result.flags if word.startswith("--") and key in valued else result.overrides
        if word.startswith("--") and key in valued and not value:
            raise ValueError(f"--{key} needs a value")
        if key in into:
            raise ValueError(f"{key} is given twice, as {into[key]} and as {value}; give one of them")
        into[key] = Text(value)
    return result


@contextmanager
def flags_first(arguments: Arguments, flags: Sequence[str]) -> Iterator[None]:
    """Refuse an unknown key as a flag if it was typed as --KEY and is closer to one of these flags than to any key."""
    from gimbal.config import UnknownKey, nearest

    try:
        yield
    except UnknownKey as error:
        typed = arguments.dashed.get(error.key, "")
        hint = nearest(typed, {*flags, *error.names}).removeprefix("; did you mean ").removesuffix("?")
        if hint in flags:
            raise ValueError(f"there is no flag --{typed}; did you mean --{hint}?") from error
        raise


def port(text: str) -> int:
    """The value of ``--port``."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(f"--port is {text}; it must be a number up to 65535, where 0 takes any free port")
    return int(text)


def table(rows: Mapping[str, str]) -> None:
    width = max(map(len, rows), default=0)
    for name, text in rows.items():
        print(f"  {name:<{width}}  {text}".rstrip())


def wrapped(names: Sequence[str]) -> None:
    import textwrap

    print(textwrap.fill(" ".join(names), 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
