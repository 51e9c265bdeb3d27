"""An image with this machine's Python and a few commands, made where podman or docker runs containers: none can be downloaded here."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from functools import cache
from pathlib import Path

NAME = "localhost/gimbal-tests:python"
SKIPPED = {"site-packages", "test", "__pycache__", "idlelib", "tkinter", "ensurepip", "lib2to3"}
COMMANDS = ("sh", "ls", "cat", "echo", "wc", "sleep", "true", "false")
# runc does without cgroups of version 2, which not every machine has; docker brings its own.
ENGINES = ("docker", "podman", "podman --runtime=runc")


def closure(programs):
    """These files and the libraries that they load."""
    found = set()
    for program in programs:
        found.add(str(program))
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        found |= {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    return found


def packed(place):
    """The image's files, as a tar."""
    python, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    modules = [*library.glob("lib-dynload/*.so")]
    with tarfile.open(place, "w") as archive:
        for name in ("tmp", "proc", "dev", "sys", "etc", "gimbal", "work"):
            one = tarfile.TarInfo(name)
            one.type, one.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(one)
        archive.add(
            library,
            str(library),
            filter=lambda one: None if SKIPPED & {*Path(one.name).parts} or one.name.endswith(".a") else one,
        )
        for path in closure([python, *modules, *filter(None, map(shutil.which, COMMANDS))]):
            if not Path(path).is_relative_to(library):
                archive.add(os.path.realpath(path), path)
        links = {"usr/bin/python3": str(python), "bin/python3": str(python)}
        # /bin is a link to usr/bin here, and a directory there: the battery's daemon is /bin/sleep.
        links |= {found[5:]: found for name in COMMANDS if (found := shutil.which(name) or "").startswith("/usr/bin/")}
        for name, target in links.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
    return place


@cache
def engine():
    """A command that runs containers here, with the image in it; or "" ."""
    for words in ENGINES:
        command = words.split()
        if (
            shutil.which(command[0]) is None
            or subprocess.run([*command, "info"], capture_output=True, check=False).returncode
        ):
            continue
        if subprocess.run([*command, "image", "inspect", NAME], capture_output=True, check=False).returncode:
            with tempfile.TemporaryDirectory() as place:
                tar = packed(Path(place, "image.tar"))
                if subprocess.run([*command, "import", str(tar), NAME], capture_output=True, check=False).returncode:
                    continue
        limits = ["--ulimit", "nofile=256:256", "--ulimit", "nproc=4096:4096"]
        tried = [
            *command,
            "run",
            "--rm",
            "--network",
            "none",
            *limits,
            "--entrypoint",
            "python3",
            NAME,
            "-c",
            "print('runs')",
        ]
        if subprocess.run(tried, capture_output=True, text=True, check=False).stdout == "runs\n":
            return words
    return ""
