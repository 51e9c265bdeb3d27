"""What a worker's process may read: the system's programs, this Python and what it imports."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
SYSTEM += ("/sys/devices/system/cpu", "/sys/devices/system/node")
ETC = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "timezone",
    "locale.conf",
    "passwd",
    "group",
    "alternatives",
)
ETC += (
    "hosts",
    "host.conf",
    "resolv.conf",
    "nsswitch.conf",
    "gai.conf",
    "services",
    "protocols",
    "mime.types",
    "os-release",
)
ETC += (
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust",
    "pki/tls/cert.pem",
)
ETC += ("fonts", "crypto-policies")
ACCELERATORS = ("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/accel*")


def granted(places: Iterable[str], *, imports: bool = True) -> tuple[str, ...]:
    """These, and what any program of this Python needs. Of the home directory, and of those above it, only what does not
    begin with a dot: keys lie there, and people start runs there. Without ``imports`` only this Python itself, and nothing of the run.
    """
    own = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *places]
    own += [*sys.path, *_imported()] if imports else []
    own += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    paths = [*SYSTEM, *(f"/etc/{name}" for name in ETC)]
    home = os.path.realpath(os.path.expanduser("~"))
    for path in own:
        paths += _without_keys(os.path.abspath(path), home) if path else ()
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


def accelerators() -> tuple[str, ...]:
    return tuple(path for pattern in ACCELERATORS for path in glob.glob(pattern))


def _without_keys(path: str, home: str) -> Iterator[str]:
    if not (home + "/").startswith(os.path.realpath(path).rstrip("/") + "/") or not os.path.isdir(path):
        yield path
    elif path == "/":  # what lies beneath is the system's
        yield from (entry.path for entry in os.scandir(path) if entry.is_file())
    else:
        for entry in os.scandir(path):
            if not entry.name.startswith("."):
                yield from _without_keys(entry.path, home)


def _imported() -> Iterator[str]:
    """Where what this process has imported lies, should that not be on the path: installed in place, as for editing."""
    for name, module in list(sys.modules.items()):
        if "." not in name:
            yield from _place(vars(module))


def _place(names: dict[str, Any]) -> Iterator[str]:
    if isinstance(names.get("MAPPING"), dict) and str(names.get("__name__")).startswith("__editable__"):
        yield from names["MAPPING"].values()  # setuptools' table of them
    if isinstance(file := names.get("__file__"), str):
        yield os.path.dirname(file) if "__path__" in names else file
