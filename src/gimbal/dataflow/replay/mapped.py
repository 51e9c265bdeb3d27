"""Rows in a file that is mapped into memory, so that the system decides what of them is there."""

from __future__ import annotations

import errno
import math
import os
import tempfile

import torch
from torch import Tensor


def room(like: Tensor, rows: int, directory: str) -> Tensor:
    """So many rows, the first of which are ``like`` and the others 0: in memory, or in a file of ``directory`` where one is named.

    The file has no name any more when this returns, so nothing is left of it when the process ends, however that ends. Its place on the
    disk is taken at once: a disk that filled up later would end the process without a word.
    """
    shape = (rows, *like.shape[1:])
    if not directory or not math.prod(shape):
        found = like.new_zeros(shape)
    else:
        size = math.prod(shape)
        try:
            with tempfile.NamedTemporaryFile(dir=directory, prefix="gimbal-rows-") as file:
                if hasattr(os, "posix_fallocate"):  # not on every system
                    os.posix_fallocate(file.fileno(), 0, size * like.itemsize)
                found = torch.from_file(file.name, shared=True, size=size, dtype=like.dtype).reshape(shape)
        except OSError as error:
            way = "lower store.capacity, or name a directory on another disk"
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                way = "it must exist and be writable until the run ends; a new run may name another"
            raise ValueError(
                f"store.disk={directory} has no place for {rows:,} decisions ({error.strerror}): {way}"
            ) from error
    found[: len(like)] = like
    return found
