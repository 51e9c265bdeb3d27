"""What docs/isolation.md promises of a sandboxed process, held against the battery in attacks.py."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import attacks
import pytest

from gimbal.sandbox.worker import Worker, contained, promises

FILES, DISK, OTHERS, ENDS, MEMORY, NUMBER, PRIVILEGES, NETWORK = promises({})
PROMISED = {  # besides that the culprit is named, the next call is answered and nothing is left
    "reads_a_file": FILES, "writes_a_file": FILES, "reads_the_environment": OTHERS, "opens_memory": OTHERS, "signals": OTHERS,
    "mounts": PRIVILEGES, "takes_namespaces": PRIVILEGES, "reaches_the_kernel": PRIVILEGES, "has_privileges": PRIVILEGES,
    "reaches_the_network": NETWORK, "leaves_a_daemon": ENDS, "leaves_a_daemon_and_returns": ENDS, "forks_without_end": NUMBER,
    "takes_memory_in_parts": MEMORY, "kills_its_keeper": OTHERS, "fills_the_disk": DISK,
}  # fmt: skip
NAMED = {
    "leaves_a_daemon": "did not return within 0.4 seconds and was ended",
    "loops": "did not return within 0.4 seconds and was ended",
    "ignores_signals": "did not return within 0.4 seconds and was ended",
    "leaves_a_daemon_and_returns": r"ended its process \(exit code 7\)",
    "forks_without_end": r"raised BlockingIOError|had \d+ processes, more than 256",
    "takes_memory": "raised MemoryError",
    "takes_memory_in_parts": r"used 0\.\d+ GB in \d processes, more than 0\.5, and was ended",
    "floods": r"raised ValueError: \?\]0;title\?z{300}",
    "closes_everything": r"ended its process \(exit code 1\)",
    "forges_this_reply": "answered another call than it was asked",
    "replies_with_nonsense": "sent an invalid answer",
    "replies_without_end": "sent an invalid answer",
    "replies_with_an_object": "raised TypeError: Object of type Runs is not JSON",
    "crashes": "signal SIGSEGV",
    "dies_without_a_name": r"ended its process \(signal 40\)",
    "exits": r"ended its process \(exit code 3\)",
    "raises_what_cannot_be_said": r"ended its process \(exit code 1\)",
}
SPOKEN = dict.fromkeys(
    ("forges_the_next_reply", "begins_a_reply"), "answered a call that nobody made"
)  # seen before the next call
WAYS = [("root",), ("user",), ("root", "namespaces"), ("user", "namespaces")]


@cache
def battery(*way: str) -> dict:
    """What came of every attack on one worker: as whom, and without what."""
    command = [sys.executable, "-W", "ignore", attacks.__file__, *way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", attacks.ATTACKS)
@pytest.mark.parametrize("way", WAYS, ids=" without ".join)
def test_an_attack_is_contained_and_named_and_the_next_call_is_answered(way, name):
    if way[0] == "root" and os.geteuid() != 0:
        pytest.skip("these tests do not run as root")
    found = battery(*way)
    assert found["intact"] == {"dummy": True, "files": True, "words": True}
    held = promises(found["lacking"])
    one = found[name]
    if held[PROMISED.get(name, ENDS)]:
        assert one["through"] == []
        assert re.search(NAMED.get(name, "^$"), one["said"])
    assert one["after"][-1] == "alive" and one["left"] == []
    assert re.search(SPOKEN[name], one["after"][0]) if name in SPOKEN else len(one["after"]) == 1


def test_the_battery_misses_no_attack():
    assert set(PROMISED) | set(NAMED) | set(SPOKEN) <= set(attacks.ATTACKS) and len(attacks.ATTACKS) >= 30


@pytest.mark.slow
def test_with_namespaces_everything_holds_and_without_what_they_give_is_missing():
    whole, bare = promises(battery("user")["lacking"]), promises(battery("user", "namespaces")["lacking"])
    if not all(whole.values()) or not bare[OTHERS]:
        pytest.skip("this kernel has no namespaces for ordinary users, or an old Landlock")
    assert {promise for promise, holds in bare.items() if not holds} == {DISK, NUMBER}
    assert battery("user", "namespaces")["fills_the_disk"]["through"] == ["many"]  # so the attack is one


def test_steps_that_are_refused_take_their_promises_along():
    everything = dict.fromkeys(
        ("namespaces", "user", "capabilities", "privileges", "landlock", "signals", "calls"), "no"
    )
    assert {promise for promise, holds in promises(everything).items() if holds} == (
        {ENDS, MEMORY} if sys.platform == "linux" else set()
    )
    assert not any(promises(everything | {"children": "no"}).values())
    assert not promises({"namespaces": "no", "user": "no", "signals": "no"})[OTHERS]
    assert promises({"namespaces": "no", "user": "no", "signals": "no"})[FILES]
    assert (
        promises({"namespaces": "no", "landlock": "no"})[OTHERS]
        and not promises({"namespaces": "no", "landlock": "no"})[FILES]
    )


def test_what_holds_here_is_what_any_worker_finds():
    worker = Worker("w", lambda: (bool, []), timeout=5.0, memory_gb=1.0)
    assert worker.needs == []
    worker.close()
    assert contained() == promises(worker.lacking)


def test_the_page_says_what_is_promised():
    page = (Path(__file__).parents[2] / "docs" / "isolation.md").read_text(encoding="utf-8")
    assert all(f"| {promise}" in page for promise in promises({}))
