"""Files that neither a kill nor a power cut can leave half written."""

from __future__ import annotations

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write(path: Path, text: str) -> None:
    """All of ``text``, or what was there before."""
    written(path, lambda partial: partial.write_bytes(text.encode()))


def written(path: Path, fill: Callable[[Path], object]) -> None:
    """The file as ``fill`` writes it under another name, put in place of ``path`` once it is on disk."""
    partial = path.with_name(path.name + ".partial")
    with named(path):
        fill(partial)
        sync(partial)
        partial.replace(path)
        sync(path.parent)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An error with the name of what could not be written, which Python leaves out where a write failed and not the opening."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    except Exception as error:  # safetensors has an error of its own, with the number of the OSError in its words
        if (found := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error


def remedy(error: OSError) -> str:
    """What to do about a write that failed for want of room, in a sentence with the file's name; "" for any other error."""
    file = "a file" if error.filename is None else error.filename
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if error.errno == errno.EFBIG and limit != resource.RLIM_INFINITY:
        return (
            f"{file} could not be written: this shell allows no file above {limit / 1e6:g} MB (ulimit -f); type ulimit -f unlimited, "
            "in a new shell if that is refused"
        )
    if error.errno == errno.EFBIG:
        return f"{file} could not be written: its file system takes no file of this size; write to another one (--runs DIRECTORY)"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full" if error.errno == errno.ENOSPC else "your disk quota is used up"
        return f"{file} could not be written: {what}; free some space, or write to another disk (--runs DIRECTORY)"
    return ""


def obstacle(error: OSError) -> str:
    """What lies in the way of a file, in a sentence without numbers of errors; "" where the error names no file."""
    if error.filename is None or error.strerror is None:
        return ""
    file = error.filename2 or error.filename
    match error.errno:
        case errno.EISDIR:
            return f"{file} is a directory, and a file is expected there; move it away"
        case errno.ENOTDIR | errno.EEXIST:
            return f"{file}: a file lies where a directory is expected; move it away"
        case errno.ELOOP:
            return f"{file} is a symbolic link that leads back to itself; remove it"
    return f"{file}: {error.strerror.lower()}"


def make_directory(directory: Path) -> bool:
    """Make the directory; False if something is there already. Refused where none can be made."""
    try:
        directory.mkdir(parents=True)
        return True
    except OSError as error:
        if os.path.lexists(directory):
            return False
        if remedy(error):
            raise
        above = next(path for path in (directory, *directory.parents) if os.path.lexists(path))
        error.filename = str(above)
        nowhere = above.is_symlink() and not above.exists()
        why = f"{above} is a link to nowhere" if nowhere else obstacle(error)
        raise ValueError(f"{directory} cannot be created ({why}); give another place with --runs DIRECTORY") from error


def regular(path: Path) -> bool:
    """Whether a file is there; a ValueError where something else is: a directory, a link to nowhere."""
    if path.is_file() or not os.path.lexists(path):
        return path.is_file()
    what = "a directory" if path.is_dir() else "a link to nowhere" if path.is_symlink() else "no regular file"
    raise ValueError(f"{path} is {what}, and a run keeps a file there; move it away")


def append(path: Path, lines: str) -> None:
    """Whole lines at the end; where a kill has left half a line there, behind that, so that it damages no other."""
    with named(path), path.open("a+b") as file:
        torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
        file.write(b"\n" * torn + lines.encode())


def sync(path: Path) -> None:
    """Bring a file to disk, or what a directory lists."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Bring all of a directory to disk."""
    for place, _, files in os.walk(directory, topdown=False):
        for name in files:
            sync(Path(place) / name)
        sync(Path(place))
