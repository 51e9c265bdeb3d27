"""Images of a row, as the paths of files: a task stays small wherever it goes (checkpoints, other processes, records).

An image inside of a dataset (bytes in a parquet file) is written to a cache once, under the digest of its bytes, when its task is
asked for. Nothing is decoded here.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gimbal import durable

NAMES = ("images", "image")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
# How the files of each kind begin.
_KINDS = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif", b"BM": ".bmp"}


def columns(row: Mapping[str, Any], where: str, beside: Path | None, *, keep: bool) -> dict[str, Any]:
    """``{"images": [paths]}`` of a row with a column images or image; {} of any other.

    ``keep``: whether an image that lies inside of the dataset is written to the cache.
    """
    found: dict[str, Any] = {}
    for name in reversed(NAMES):  # of a row with both, the list is what is shown
        value = row.get(name)
        several = list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
        if several and all(map(_is_image, several)):
            paths = [_path(item, f"{where}, column {name}", beside, keep) for item in several]
            found |= {name: paths if isinstance(value, list | tuple) else paths[0], "images": paths}
    return found


def cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gimbal"


def _is_image(value: Any) -> bool:
    """A path, the bytes, both as a dataset of the Hub holds them, or an image of PIL; a column image of other text is left alone."""
    if isinstance(value, Mapping):
        return {"bytes", "path"} >= set(value) and bool(value.get("bytes") or value.get("path"))
    return isinstance(value, bytes) or is_pil(value) or (isinstance(value, str) and value.lower().endswith(SUFFIXES))


def is_pil(value: Any) -> bool:
    return type(value).__module__.startswith("PIL.") and hasattr(value, "save")


def _path(value: Any, where: str, beside: Path | None, keep: bool) -> str:
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        return _found(value, where, beside)
    return stored(value, where, keep=keep)


def _found(name: str, where: str, beside: Path | None) -> str:
    places = [Path(name).expanduser(), *([beside / name] if beside else [])]
    for place in reversed(places):  # beside the file first
        if place.is_file():
            return os.path.realpath(place)
    raise ValueError(
        f"{where}: there is no image {name}; a path is absolute, or begins in the directory of the file of rows"
    )


def stored(image: Any, where: str, *, keep: bool = True) -> str:
    """The path in the cache of an image that was given as bytes, or as an image of PIL."""
    if not isinstance(image, bytes):
        held = io.BytesIO()
        image.save(held, "PNG")
        image = held.getvalue()
    kind = next((suffix for begin, suffix in _KINDS.items() if image.startswith(begin)), "")
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        kind = ".webp"
    if not kind:
        raise ValueError(f"{where}: {len(image):,} bytes that begin {image[:8]!r} are no PNG, JPEG, GIF, BMP or WebP")
    name = hashlib.blake2b(image, digest_size=16).hexdigest()
    path = cache() / "images" / name[:2] / (name + kind)
    if keep and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")  # two runs may come to the same image at once
        with durable.named(path):
            partial.write_bytes(image)
            durable.sync(partial)
        partial.replace(path)
    return str(path)
