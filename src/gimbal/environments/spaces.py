"""What gymnasium's spaces hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Shaped


def uncounted(space: Any, place: str = "") -> Iterator[str]:
    """The parts of what is shown that are not numbers of a fixed count."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        for name, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from uncounted(inner, f"{place}/{name}".removeprefix("/"))
        return
    try:
        counted = space.is_np_flattenable and isinstance(spaces.flatten_space(space), spaces.Box)
    except (
        NotImplementedError
    ):  # of a space that a package has made itself, and that says nothing of it (minigrid's missions)
        counted = False
    if not counted:
        yield f"{space!s:.80}" + (f" as {place!r}" if place else "")


def pixels(space: Any) -> Iterator[Any]:
    """The images in what is shown."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        for inner in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from pixels(inner)
    elif isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1 and space.high.max() == 255:
        yield space


def plus(first: int) -> Callable[[int], int]:
    return lambda choice: first + choice


def each(acts: Any, choice: int) -> Shaped[np.ndarray, " D"]:
    """The combination of several choices that has this number."""
    return acts.start + np.array(np.unravel_index(choice, acts.nvec), dtype=acts.dtype)
