"""What docs/isolation.md says that the rungs contain, held against the battery in programs.py, as root and as an ordinary user."""

import json
import os
import re
import shutil
import tempfile
import traceback
import warnings
from functools import cache

import image
import programs
import pytest

NAMED = {  # how a program that is ended, or ends itself, is told: the limit, or the exit code and its last words
    "forks_without_end": r"processes|BlockingIOError",
    "starts_threads_without_end": r"can't start new thread|processes|alive",
    "takes_memory_in_parts": r"memory used more than 0\.2 GB",
    "floods": "output said more than 20,000 bytes",
    "floods_errors": "output said more than 20,000 bytes",
    "crashes": r"code -11",
    "raises_what_cannot_be_said": "code 1",
} | dict.fromkeys(programs.HANGS, r"deadline did not return within 0\.4 seconds")
LEFT = {"leaves_a_daemon", "leaves_one_that_speaks"}
UNCLAIMED = {
    "fills_the_disk_in_parts"
}  # where there are no namespaces: one file has a limit, all of them together have none
WAYS = [
    ("root", "Landlock"),
    ("user", "Landlock"),
    ("user", "Landlock", "namespaces"),
    ("root", "Bubblewrap"),
    ("user", "Bubblewrap"),
    ("root", "Container"),
]


@cache
def battery(*way: str) -> dict:
    """What came of every attack: as whom, in which rung, and without what. In a fork of this process, which becomes somebody else for
    good; a process of its own would first import torch for as long as all of this takes.
    """
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            try:
                warnings.simplefilter("ignore")
                json.dump(programs.main(*way), said)
                said.flush()
            except BaseException:
                traceback.print_exc(file=said)
                said.flush()
                os._exit(1)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        text = said.read()
    assert ended == 0, text[-3000:]
    return json.loads(text)


def found(way: tuple[str, ...]) -> dict:
    if way[0] == "root" and os.geteuid() != 0:
        pytest.skip("these tests do not run as root")
    if "Bubblewrap" in way and shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    if "Container" in way and not image.engine():
        pytest.skip("neither docker nor podman runs a container here")
    result = battery(*way)
    if way[1] == "Landlock" and "namespaces" in result["lacking"] and "signals" in result["lacking"]:
        pytest.skip("no namespaces here, and an old Landlock: this rung refuses untrusted code")
    return result


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_every_attack_is_contained_named_and_leaves_nothing(way):
    result = found(way)
    assert len(programs.ATTACKS) >= 35 and set(NAMED) | LEFT | UNCLAIMED <= set(programs.ATTACKS)
    assert result["intact"]["dummy"]
    assert result["intact"]["files"] == dict.fromkeys(("own", "run", "secret", "temporary"), "") | dict.fromkeys(
        ("own/file", "run/answers", "secret/file"), "644 hidden words"
    )
    for name in programs.ATTACKS:
        one = result[name]
        if name not in UNCLAIMED or "namespaces" not in result["lacking"]:
            assert "through" not in one["output"], (name, one["output"])
        assert one["after"] == "alive kept\n" and one["marked"] == [], (name, one)
        told = f"{one['limit']} {one['said']} code {one['code']} {one['errors']} {one['after'].split()[0]}"
        assert re.search(NAMED.get(name, "^  code 0  alive$"), told), (name, told)
        assert (one["left_over"] > 0) == (name in LEFT or one["left_over"] > 20), name
    assert result["links_out"]["opened"] == []


@pytest.mark.slow
def test_without_namespaces_only_the_sum_of_files_is_not_contained():
    """So the battery can tell."""
    assert "through many" in found(("user", "Landlock", "namespaces"))["fills_the_disk_in_parts"]["output"]
