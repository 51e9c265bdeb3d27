"""Dotted overrides: ``objective.clip_high=0.3`` sets any field of a run, with its type.

objective.clip_high=0.3                         a field
learning_rate=1e-3                              a field by the end of its path, if that is unique
rewards.0.weight=0.5                            a field of an item; the index after the last one appends
tasks.parameters.max_terms=4                    an entry of a mapping; new keys are allowed
objective=SequenceRatio(clip_low=3e-4)          a whole part
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from gimbal.config.aliases import ALIASES, BOTH_CLIPS, EXPLAINED, PARTS, SECTIONS
from gimbal.config.classes import catalogue, nearest
from gimbal.config.expected import is_columns, is_mixture
from gimbal.config.parts import Text, find, read
from gimbal.nested import children, walk

Changes = list[tuple[str, Any]]  # (path from here, value); an empty path means the whole part


class UnknownKey(ValueError):
    """An unknown key. ``names``: the last names of existing keys."""

    def __init__(self, key: str, told: str, names: Iterable[str]) -> None:
        super().__init__(told)
        self.key, self.names = key, frozenset(names)


def override(run: Any, changes: Mapping[str, Any], notice: Callable[[str], None] = lambda sentence: None) -> Any:
    """The run with these changes. ``notice`` receives every translated name; unknown names raise ValueError."""
    wholes = {key: changes[key] for key in changes if any(other.startswith(key + ".") for other in changes)}
    if wholes and len(wholes) < len(changes):
        # A part is set before its fields are looked up: objective=SequenceRatio() objective.clip_low=1e-3.
        run = override(run, wholes, notice)
        changes = {key: value for key, value in changes.items() if key not in wholes}
    named = {key: PARTS[name] for key in changes if (name := _tail(run, key)) in PARTS}
    parts = {
        key: part for key, part in named.items() if locate(run, key, changes[key])[0][0].startswith("regularisers")
    }
    if len(parts) > 1:  # each may add a part, and the next one follows it
        first, *others = parts
        if same := next((key for key in others if parts[key] == parts[first]), ""):
            raise ValueError(f"{first} and {same} both set the coefficient of {parts[first]}; give one of them")
        run = override(run, {first: changes[first]}, notice)
        changes = {key: value for key, value in changes.items() if key != first}
        return override(run, changes, notice)
    inside: dict[str, dict[str, Any]] = {}  # fields of parts that are still None
    special: dict[str, tuple[str, Any]] = {}  # path -> (the key that sets it, value)
    # The same for keys that set several paths: a key that sets only one takes precedence.
    broad: dict[str, tuple[str, Any]] = {}
    for key, value in changes.items():
        places = locate(run, key, value)
        if key in BOTH_CLIPS or any(path != key and not path.endswith("." + key) for path, _ in places):
            notice(f"{key}={value} is read as {' '.join(f'{path}={shown}' for path, shown in places)}")
        into = special if len(places) == 1 else broad
        for path, placed in places:
            if path in into:
                raise ValueError(f"{into[path][0]} and {key} both set {path}; give one of them")
            if not reachable(run, path):
                whole = _absent(run, path)
                if whole is None:
                    raise _unknown(run, path)
                fields_given = inside.setdefault(whole, {})
                fields_given[path[len(whole) + 1 :]] = placed
                path, placed = whole, fields_given
            into[path] = (key, placed)
    return _apply(run, type(run), [(path, value) for path, (_, value) in (broad | special).items()], "")


def locate(run: Any, key: str, value: Any) -> Changes:
    """The paths that a key sets, with their values."""
    if "" in key.split("."):
        raise _unknown(run, key)
    if reachable(run, key) or _absent(run, key):
        return [(key, value)]
    name = _tail(run, key)
    matches = [path for path in paths(run) if path.endswith("." + name)]
    # The evaluation and a reference repeat names of the run; a short name refers to training, and a path into training to nothing else.
    trained = [path for path in matches if not path.startswith(("held_out.", "reference."))]
    matches = trained if trained or name.partition(".")[0] in children(run) else matches
    if name in BOTH_CLIPS:
        return [(path, value) for path in BOTH_CLIPS[name]]
    if name in ALIASES:
        path = ALIASES[name]
        inside = [other for other in paths(run) if other.endswith("." + path) and not other.startswith("held_out.")]
        return [(inside[0] if len(inside) == 1 and not reachable(run, path) else path, value)]
    if name in PARTS and not matches and "regularisers" in children(run):  # a DPO objective has its own field beta
        kinds = [type(part).__name__ for part in run.regularisers]
        if PARTS[name] in kinds:
            return [(f"regularisers.{kinds.index(PARTS[name])}.coef", value)]
        return [(f"regularisers.{len(kinds)}", Text(f"{PARTS[name]}(coef={value})"))]
    if name in EXPLAINED:
        raise ValueError(f"{key} is not a key here: {EXPLAINED[name]}")
    if len(matches) == 1:
        return [(matches[0], value)]
    if matches:
        raise ValueError(f"{key} could be any of {', '.join(matches)}; write the whole path")
    raise _unknown(run, key)


def _tail(run: Any, key: str) -> str:
    """The part of another system's dotted name that has a meaning here; our own keys unchanged."""
    section, *names = key.split(".")
    if key in EXPLAINED or section not in SECTIONS or section in children(run):
        return key
    tails = [key, *(".".join(names[place:]) for place in range(len(names)))]
    known = (tail for tail in tails if tail in BOTH_CLIPS or tail in ALIASES or tail in PARTS or tail in EXPLAINED)
    return next(known, tails[-1])


def paths(part: Any, prefix: str = "") -> dict[str, Any]:
    """Every dotted path into a part, with its value; parts come before their fields."""
    return {prefix + path: value for path, value in walk(part)}


def reachable(part: Any, path: str) -> bool:
    """Whether the path leads to a field, an item (or the place after the last one), or a mapping's key, old or new."""
    if not path or isinstance(part, Mapping):
        return True
    head, _, rest = path.partition(".")
    if isinstance(part, tuple) and head == str(len(part)):
        return not rest
    inside = children(part)
    return head in inside and reachable(inside[head], rest)


def _absent(run: Any, path: str) -> str | None:
    """The path of the part that is None and would hold this field, if its type leaves no choice: held_out for held_out.tasks."""
    whole = path.rpartition(".")[0]
    known = {"": run, **paths(run)}
    if whole not in known or known[whole] is not None:
        return None
    holder, _, name = whole.rpartition(".")
    if not is_dataclass(known[holder]):
        return None
    kinds = [kind for kind in get_args(get_type_hints(type(known[holder]))[name]) if kind is not type(None)]
    return whole if len(kinds) == 1 and is_dataclass(kinds[0]) else None


def _unknown(run: Any, key: str) -> ValueError:
    """The refusal of a key, with the nearest path: by its last name first, since that is what users remember."""
    known, last = list(paths(run)), key.rpartition(".")[2]
    head = key.rpartition(".")[0]
    if head in paths(run) and paths(run)[head] is None:
        return ValueError(f"{key}: {head} is None in this recipe; give a whole part first, {head}=PART(...)")
    named_so = [path for path in known if path.rpartition(".")[2] == last]
    if not named_so and (owners := _owners(paths(run).get(head), last)):
        here = paths(run)[head]
        part = type(here).__name__
        told = f"there is no key {key}, since {part} has no {last}: leave it out"
        if alike := [owner for owner in owners if _drawn_by(find(owner)) == _drawn_by(type(here))]:
            verb = "has" if len(alike) == 1 else "have"
            way = f"{part} has no {last}, but {' and '.join(alike[:3])} {verb}: {head}='{alike[0]}({last}=...)'"
            told = f"there is no key {key}: {way}"
        return UnknownKey(key, told, [])
    ranked: Iterable[str] = named_so or known
    # A bare name may be nearer to the last name of a path than to any whole path.
    hint = nearest(key, ranked) if head or named_so else ""
    hint = hint or (f"; did you mean {named_so[0]}?" if named_so else "")
    if not hint and (close := nearest(last, {path.rpartition(".")[2] for path in known})):
        name = close.removeprefix("; did you mean ").removesuffix("?")
        named = (path for path in known if path.rpartition(".")[2] == name)
        hint = f"; did you mean {min(named, key=lambda path: path.count('.'))}?"
    names = (path.rpartition(".")[2] for path in known)
    return UnknownKey(key, f"there is no key {key}{hint or ' (--help lists them)'}", names)


def _owners(part: Any, name: str) -> list[str]:
    """gimbal's parts of the same kind that have this field."""
    own = catalogue().get(type(part).__name__)
    if own is None or "AbstractPart" not in own.bases[1:]:
        return []
    kind = own.bases[own.bases.index("AbstractPart") - 1]
    others = sorted(entry.name for entry in catalogue().values() if entry.part and kind in entry.bases)
    return [other for other in others if is_dataclass(found := find(other)) and name in {f.name for f in fields(found)}]


def _drawn_by(kind: Any) -> Any:
    """Of a policy's class: how it is sampled, which keeps those of other families apart; None of other parts."""
    return getattr(getattr(kind, "family", None), "sampling", None)


def _apply(part: Any, annotation: Any, changes: Changes, at: str) -> Any:
    """The part with all changes at once, so that checks across fields see all of them."""
    for path, value in changes:
        if not path:
            part = read(value, annotation, at)
    inner = [(path, value) for path, value in changes if path]
    if not inner:
        return part
    if part is None:
        way = f"give a whole part, {at}=PART(...)"
        if at == "held_out":
            way = "add held_out=FILE or held_out=0.1, or leave it out"
        raise ValueError(f"{at}.{inner[0][0]} sets a field of {at}, and this run has none: {way}")
    here = at + "." if at else ""
    if isinstance(part, Mapping):
        grouped = _grouped(inner, lambda path: _mapping_key(part, path))
        value_type = (get_args(annotation) or (Any, Any))[1]
        return {**part, **{key: _apply(part.get(key), value_type, sub, here + key) for key, sub in grouped.items()}}
    grouped = _grouped(inner, lambda path: path.partition(".")[0])
    if isinstance(part, tuple):
        items, item_type = dict(enumerate(part)), (get_args(annotation) or (Any,))[0]
        for index, sub in grouped.items():
            items[int(index)] = _apply(items.get(int(index)), item_type, sub, here + index)
        return tuple(items.values())
    hints = get_type_hints(type(part))
    return replace(
        part, **{name: _apply(vars(part)[name], hints[name], sub, here + name) for name, sub in grouped.items()}
    )


def _mapping_key(mapping: Mapping[str, Any], path: str) -> str:
    """Keys may contain dots (controllers are keyed by path): the longest key that begins the path, or the path as a new key."""
    known = [key for key in mapping if path == key or path.startswith(key + ".")]
    return max(known, key=len, default=path)


def _grouped(changes: Changes, head: Callable[[str], str]) -> dict[str, Changes]:
    groups: dict[str, Changes] = defaultdict(list)
    for path, value in changes:
        groups[head(path)].append((path[len(head(path)) + 1 :], value))
    return groups


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested overrides (a YAML file, Python keywords with double underscores) as dotted ones; strings are treated as typed text."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        path = prefix + str(key).replace("__", ".")
        whole = isinstance(value, Mapping) and (is_mixture(value) or is_columns(value, path))
        if isinstance(value, Mapping) and "class" not in value and value and not whole:
            flat |= flatten(value, path + ".")
        else:
            flat[path] = Text(value) if isinstance(value, str) else value
    return flat
