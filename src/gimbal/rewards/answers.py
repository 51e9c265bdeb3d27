"""Extracts the answer from a completion. Imported by scoring processes too: no torch here."""

from __future__ import annotations


def extract(text: str, opening: str, closing: str) -> str | None:
    """The text between the last ``opening`` and the ``closing`` after it, stripped; None if either is missing.

    An empty ``opening`` means the start of the text, an empty ``closing`` its end.
    """
    start = text.rfind(opening) if opening else 0
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start) if closing else len(text)
    return None if end < 0 else text[start:end].strip()
