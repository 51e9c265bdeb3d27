"""Writes docs/methods/: one page a method, from its docstring. `python docs/generate.py`; a test holds the pages against it.

Equations become LaTeX (docs/typeset.py). What claims/README.md has decided about a method stands on its page.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
import sys
from functools import cache
from pathlib import Path

from gimbal import config, recipes

sys.path.insert(0, str(Path(__file__).parent))  # this file is run, and read by a test, by its path
import typeset

HERE = Path(__file__).parent / "methods"
CLAIMS = Path(__file__).parents[1] / "claims" / "README.md"
MOST_RECIPES = 12  # named on a page
# The comparisons of claims/README.md that are about a method: (arms, what they differ in).
DECIDED = {
    "ClippedRatio": [("*clip*, *unclipped*", "the clip"), ("*clip*, *plain*", "4 updates for one, and the clip")],
    "MaskedWeight": [("*weighted*, *plain*", "the weight"), ("*decoupled*, *clip*", "the weight")],
    "TruncatedWeight": [("*truncated*, *clip*", "the weight")],
    "Behavior": [("*sampler*, *clip*", "what the clip is anchored to")],
    "DiscrepancyPenalty": [("*token*, *clip*", "the price"), ("*rollout*, *clip*", "the price")],
    "SamplingVersion": [("*none-version*, *none-present*", "what the clip is anchored to")],
}


def pages() -> dict[str, str]:
    """Every file of docs/methods/ by name."""
    written, rows = {}, []
    users = used_by()
    for kind, entries in sorted(config.methods().items()):
        rows.append(f"\n## {kind}\n")
        for entry in sorted(entries, key=lambda e: e.name):
            method = config.find(entry.name)
            written[f"{entry.name}.md"] = page(method, kind, users.get(entry.name, []))
            known = f" *({entry.confidence})*" if entry.confidence not in ("", "verified") else ""
            rows.append(f"- [{entry.name}]({entry.name}.md): {entry.summary}{known}")
    head = "# Methods\n\nWritten by docs/generate.py from the docstrings; `gimbal show NAME` prints the same."
    written["README.md"] = head + "\n" + "\n".join([*by_question(), *rows]) + "\n"
    return written


def by_question() -> list[str]:
    """For each question its recipes, and what they add to those of the core."""
    kinds = {entry.name for entries in config.methods().values() for entry in entries}
    rows = ["\n## By question\n"]
    for question, about in recipes.questions().items():
        adds = ", ".join(f"[{name}]({name}.md)" for name in sorted(recipes.methods_of(question) & kinds))
        answers = ", ".join(f"`{name}`" for name in recipes.of(question))
        rows.append(
            f"- **{question}**: {about} Recipes: {answers}. {'They hold' if question == 'core' else 'They add'}: {adds}."
        )
    return rows


def page(method: type, kind: str, users: list[str]) -> str:
    """Docstring with its equations, fields with their defaults, which recipes use it, what was decided about it."""
    # Its own first; those of a shared base, such as the settings of a success model, come after.
    items = sorted(dataclasses.fields(method), key=lambda item: item.name not in method.__annotations__)
    fields = [item.name for item in items]
    text, _ = typeset.docstring(inspect.getdoc(method) or "", fields)
    parts = [f"# {method.__name__}", f"{kind} · `{method.__module__}`", text]
    if fields:
        rows = [f"| `{item.name}` | {cell(default(item))} |" for item in items]
        parts.append("\n".join(["| field | default |", "|---|---|", *rows]))
    if users:
        core = recipes.of("core")
        named = sorted(users, key=lambda name: (name not in core, name))[:MOST_RECIPES]
        more = f" and {len(users) - len(named)} more" if len(users) > len(named) else ""
        parts.append("Recipes: " + ", ".join(f"`{name}`" for name in named) + more)
    return "\n\n".join([*parts, *claim(method.__name__)]) + "\n"


def cell(value: str) -> str:
    """A default as code in a table, where a bar would end the cell."""
    shown = value if len(value) <= 200 else f"{value[:200]}…"
    return f"`{shown}`" if "|" not in shown else f"<code>{html.escape(shown).replace('|', '&#124;')}</code>"


def claim(name: str) -> list[str]:
    """What the comparisons of claims/README.md say of a method."""
    if name == "Stability":
        return [
            "Claim: [a closed loop over the learning rate](../../claims/README.md), with each part taken out in turn."
        ]
    rows = [row for arms, apart in DECIDED.get(name, []) for row in comparisons() if row[2:4] == (arms, apart)]
    if not rows:
        return []
    head = "Claim ([setting and rule](../../claims/README.md)): the first arm's held-out pass@1 less the second's, five seeds each."
    table = ["| age | arms | difference | p | verdict |", "|---|---|---|---|---|"]
    return [head, "\n".join([*table, *(f"| {' | '.join((row[1], row[2], *row[4:]))} |" for row in rows)])]


@cache
def comparisons() -> list[tuple[str, ...]]:
    """Rows of the table of comparisons: question, age, arms, apart in, difference, p, verdict."""
    found = re.findall(r"^\| (?:age|gap|price) \| .* \|$", CLAIMS.read_text(encoding="utf-8"), re.MULTILINE)
    return [tuple(row.strip("| ").split(" | ")) for row in found]


def default(item: dataclasses.Field) -> str:
    if item.default is not dataclasses.MISSING:
        return repr(item.default)
    return "required" if item.default_factory is dataclasses.MISSING else repr(item.default_factory())


def used_by() -> dict[str, list[str]]:
    """Recipes by the parts they hold."""
    users: dict[str, list[str]] = {}
    for name in recipes.names():
        for part in sorted(parts_of(recipes.load(name))):
            users.setdefault(part, []).append(name)
    return users


def parts_of(value: object) -> set[str]:
    """Names of the classes of all dataclasses within a value."""
    if dataclasses.is_dataclass(value):
        inner = (parts_of(getattr(value, item.name)) for item in dataclasses.fields(value))
        return {type(value).__name__}.union(*inner)
    if isinstance(value, dict):
        value = tuple(value.values())
    return set().union(*map(parts_of, value)) if isinstance(value, tuple) else set()


def main() -> None:
    HERE.mkdir(exist_ok=True)
    written = pages()
    for old in HERE.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
