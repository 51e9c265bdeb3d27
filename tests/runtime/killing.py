"""Runs that are killed: in processes forked from a warm one, at a file operation, in the middle of a write, or at a random time."""

import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
from multiprocessing import forkserver, spawn
from pathlib import Path
from unittest import mock

import torch
from slow import Slow

from gimbal.records import Acted
from gimbal.report.files import JsonLines
from gimbal.runtime import checkpoint
from gimbal.runtime.local import run_local

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "shutil.copyfile")


class Countdown:
    """Kills this process at its ``left``-th file operation under ``directory``, before it is done; None only counts."""

    def __init__(self, directory, left):
        self.directory, self.left, self.count = str(directory), left, 0
        sys.addaudithook(self._heard)
        self._wrap(os, "fsync")
        self._wrap(torch, "save")
        append = JsonLines.append

        def torn(lines, row):
            before = lines.path.stat().st_size if lines.path.exists() else 0
            append(lines, row)
            if self.left is not None and self.count + 1 >= self.left:  # half a line
                os.truncate(lines.path, (before + lines.path.stat().st_size) // 2)
            self.one()

        JsonLines.append = torn

    def one(self):
        self.count += 1
        if self.count == self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def _heard(self, event, args):
        if event in OPERATIONS and any(self._under(arg) for arg in args):
            self.one()

    def _under(self, arg):
        return isinstance(arg, str | os.PathLike) and str(arg).startswith(self.directory)

    def _wrap(self, module, name):
        function = vars(module)[name]

        def counted(*args, **kwargs):
            self.one()
            return function(*args, **kwargs)

        setattr(module, name, counted)


def _train(run, directory, left, call):
    with open(f"{directory}.said", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    Countdown(directory, left)
    Slow.left = call
    run_local(run, directory, resume=True)


def warm():
    """Where children come from: a process that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["warmed"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), before)))
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    return context


def trained(context, run, directory, at=None, call=None):
    """Train until it is finished or dead: killed at file operation number ``at``, or during this ``call`` of a tool, if given."""
    process = context.Process(target=_train, args=(run, directory, at, call))
    with mock.patch.object(spawn, "get_preparation_data", _without_main):
        process.start()
    return process


def _without_main(name, get=spawn.get_preparation_data):
    """What a child is told of its parent; not to run the parent's script, pytest's, once more."""
    return {key: value for key, value in get(name).items() if not key.startswith("init_main")}


def killed(context, run, directory, draw: random.Random, kinds=("operation", "time")):
    """Train until it is finished, killed again and again; of each kill its kind, and the rollouts that were half drawn and the calls
    of tools that were open in the checkpoint that the run then continues from, which is never an earlier one than before."""
    kills, step, turns = [], 0, itertools.cycle(kinds)
    while not (directory / "summary.json").exists():
        kind = next(turns)
        at = draw.randrange(1, 120) if kind == "operation" else None
        process = trained(context, run, directory, at, call=draw.randrange(1, 40) if kind == "call" else None)
        struck = kind in ("time", "child") and _strike(process, kind, draw.uniform(0.0, 0.7))
        process.join(600)
        if kind == "child":  # the run begins another, or ends because it missed the answer
            assert process.exitcode in (0, 1)
        else:
            said = Path(f"{directory}.said").read_text()[-2000:]
            assert process.exitcode in (0, -signal.SIGKILL), (
                f"it failed by itself, or hangs ({process.exitcode}): {said}"
            )
            struck = process.exitcode != 0
        if struck:
            found = checkpoint.resumable(directory, fail)
            before, step = step, 0 if found is None else int(found.name[5:11])
            assert step >= before, f"the checkpoint of step {before} is gone"
            kills.append((kind, *((0, 0) if found is None else under_way(checkpoint.load(found)))))
    return kills


def _strike(process, kind, moment) -> bool:
    """Kill it, or its children, after so many seconds of processor time; whether there was anything left to kill."""
    while process.is_alive():
        victims = [process.pid] if kind == "time" else children(process.pid)
        if victims and _seconds(process.pid) >= moment:
            for pid in victims:
                _kill(pid)
            return True
        time.sleep(0.003)
    return False


def fail(sentence):
    raise AssertionError(sentence)


def _seconds(pid) -> float:
    """Of processor time, so that a busy machine changes nothing."""
    found = _stat(pid)
    return (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK") if len(found) > 2 else float("inf")


def children(pid) -> list[int]:
    return [other for other in map(int, filter(str.isdigit, os.listdir("/proc"))) if _stat(other)[1] == str(pid)]


def _stat(pid) -> list[str]:
    """State, parent and so on; a process that has ended meanwhile has the parent 0."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ProcessLookupError):
        return ["X", "0"]


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has ended meanwhile
        time.sleep(0)


def differing(a, b, place="state"):
    """Where two saved states are not the same bit for bit, in values, kinds and orders; None if they are."""
    if isinstance(a, Acted) and isinstance(b, Acted):  # its seconds are of the clock
        a, b = a._replace(seconds=0.0), b._replace(seconds=0.0)
    if type(a) is not type(b):
        return f"{place}: {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, torch.Tensor):
        bits = [x.contiguous().flatten().view(torch.uint8) if x.ndim else x for x in (a, b)]
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
        return None if same else f"{place}: {a.flatten()[:4]} and {b.flatten()[:4]}"
    if isinstance(a, dict):
        inside = [(key, a[key], b[key]) for key in a] if list(a) == list(b) else None
    elif isinstance(a, list | tuple):
        inside = list(zip(range(len(a)), a, b, strict=True)) if len(a) == len(b) else None
    elif hasattr(a, "__dataclass_fields__"):
        # What a record leaves out of comparisons is of the clock.
        inside = [(name, vars(a)[name], vars(b)[name]) for name, item in a.__dataclass_fields__.items() if item.compare]
    else:
        return None if a == b or (a != a and b != b) else f"{place}: {a} and {b}"
    if inside is None:
        return f"{place}: {str(a)[:80]} and {str(b)[:80]}"
    return next((found for key, x, y in inside if (found := differing(x, y, f"{place}.{key}"))), None)


def under_way(state) -> tuple[int, int]:
    """Rollouts of a checkpoint that were half drawn, and calls of tools that were not answered."""
    engine, acting = state["pipeline"]["engine"], 0
    while "inner" in engine:
        acting += len(engine.get("acting", ()))
        engine = engine["inner"]
    return sum(
        bool(row.get("drawn") or row.get("behavior")) for row in engine.get("rows") or engine.get("live") or []
    ), acting
