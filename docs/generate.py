"""Writes docs/methods/: one page a method, from its docstring. `python docs/generate.py`; a test holds the pages against it."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

from gimbal import config, recipes

HERE = Path(__file__).parent / "methods"


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
    """Docstring, fields with their defaults, where it lives, which recipes use it."""
    parts = [f"# {method.__name__}", f"{kind} · `{method.__module__}`", f"```text\n{inspect.getdoc(method)}\n```"]
    fields = [f"- `{item.name}` = `{default(item)}`" for item in dataclasses.fields(method)]
    if fields:
        parts.append("\n".join(fields))
    if users:
        parts.append("Recipes: " + ", ".join(f"`{name}`" for name in users))
    return "\n\n".join(parts) + "\n"


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
