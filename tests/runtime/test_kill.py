"""Runs that are killed again and again, at every kind of moment, come to the bits of the run that was left alone."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from killing import differing, killed, trained, warm
from small import rows, small_run

from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.engines.branched import Branched
from gimbal.engines.native import Native
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.recipes.cartpole import cartpole
from gimbal.records import Sampling
from gimbal.report.files import deterministic
from gimbal.rewards.function import Function
from gimbal.runtime import checkpoint

KILLS = 8  # at least, of each run
REWARD = """
def digits(prompts, completions, **columns):
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""


def tokens(length, slots, k, *, engine=None, stop=(), **changes):
    native = replace(Native(slots=slots, precision="bfloat16"), **(engine or {}))
    changes = {"engine": native, **changes}
    return small_run(sampling=Sampling(max_length=length, stop=stop), max_staleness=k, **changes)


def cart():
    run = cartpole()
    small = {"prompts_per_step": 4, "sampling": replace(run.sampling, max_length=25), "max_staleness": 1}
    return replace(run, engine=replace(run.engine, slots=3), threads=1, held_out=None, **small)


RUNS = {
    "synchronous": lambda home: tokens(14, 4, 0),
    "one version behind": lambda home: tokens(14, 4, 1),
    "three behind, cache rebuilt": lambda home: tokens(14, 4, 3, engine={"cache": "recompute"}),
    "stop strings, entropies": lambda home: tokens(22, 5, 1, stop=("7",), engine={"entropy": True}),
    "float32, deltas, every second step": lambda home: tokens(
        20, 6, 3, engine={"precision": "float32"}, sync=Sparse(dtype="float32"), checkpoint_every=2, keep_checkpoints=1
    ),
    "a reward's process": lambda home: tokens(14, 3, 1, rewards=(Function(function=f"{home / 'mine.py'}:digits"),)),
    "branches, a curriculum that observes": lambda home: tokens(
        16, 4, 1, engine={"precision": "int8"}, curriculum=Tracked(), tasks=rows(3)
    ),
    "control": lambda home: cart(),
}


@pytest.fixture(scope="module")
def context():
    if torch.cuda.is_available():
        pytest.skip("its children are forked, which a GPU does not survive")
    return warm()


def state(directory):
    found = checkpoint.load(checkpoint.newest(directory))
    del found["totals"]["seconds"]
    return found


def records(directory):
    metrics = [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    model = {path.name: path.read_bytes() for path in (directory / "model").iterdir()}
    return metrics, (directory / "rollouts.jsonl").read_bytes(), model


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_comes_to_the_same_bits(context, tmp_path, name):
    (tmp_path / "mine.py").write_text(REWARD)
    run = RUNS[name](tmp_path)
    run = replace(run, steps=8, record_every=2, checkpoint_every=min(2, run.checkpoint_every))
    if name.startswith("branches"):
        run = replace(run, engine=Branched(engine=run.engine))
    if run.checkpoint_every == 2 and run.keep_checkpoints > 1:
        run = replace(run, checkpoint_every=1)
    whole = trained(context, run, tmp_path / "whole")
    whole.join(120)
    assert whole.exitcode == 0
    draw, kills = random.Random(name), []
    kinds = ("operation", "time", "child") if name == "a reward's process" else ("operation", "time")
    while len(kills) < KILLS:
        cut = tmp_path / f"cut {len(kills)}"
        kills += killed(context, run, cut, draw, kinds)
        assert records(cut) == records(tmp_path / "whole")
        assert differing(state(cut), state(tmp_path / "whole")) is None
    assert {kind for kind, _ in kills} == set(kinds)
    assert any(half for _, half in kills) == (run.max_staleness > 0), "rollouts half drawn were among what was resumed"
