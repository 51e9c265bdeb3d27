"""A user's function as the bytes that its process loads."""

from __future__ import annotations

import io
import marshal
import types
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

REDUCERS: Mapping[type, Callable[[Any], Any]] = vars(cloudpickle.Pickler)["dispatch_table"]


def _code(code: types.CodeType) -> tuple[Callable[..., Any], tuple[bytes]]:
    return marshal.loads, (marshal.dumps(code),)  # marshal's format is that of one Python: the process has the same


class _Pickler(cloudpickle.Pickler):
    """cloudpickle, but code keeps the name of its file: otherwise no error says where it was raised."""

    dispatch_table = ChainMap[type, Any]({types.CodeType: _code}, dict(REDUCERS))  # noqa: RUF012


def dumps(target: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file).dump(target)
        return file.getvalue()
