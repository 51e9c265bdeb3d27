"""The learner in two processes is the learner in one: gradients, weights, metrics, checkpoints; and who is left when one dies."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))
import spread

from gimbal import cli
from gimbal.learning.distributed import shares
from gimbal.learning.joining import join
from gimbal.learning.ranks import SingleProcess
from gimbal.report.files import deterministic
from gimbal.runtime import checkpoint

RUN = ["grpo", "steps=4", "prompts_per_step=3", "num_generations=3", "held_out=None", "threads=1"]
RUN += ["engine.precision=float32", "sampling.max_length=40", "epsilon=1e-6"]
DIES = """
import os, signal, sys
from gimbal.cli import main
from gimbal.learning.distributed import Member
do, told = Member.do, []
def die(self, verb, given):
    told.append(verb)
    if self.ranks.rank == {rank} and told.count("step") == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return do(self, verb, given)
Member.do = die
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def spread_out(tmp_path_factory):
    """A directory in which one process and two under torchrun have done the same: steps, a run, and the second half of each other's."""
    torch.set_num_threads(1)
    where = tmp_path_factory.mktemp("ranks")
    torch.save({shape: spread.batches(shape) for shape in spread.SHAPES}, where / "batches.pt")

    def train(name):
        return ["train", *RUN, "checkpoint_every=2", "--runs", str(where), "--name", name]

    assert cli.main(train("one")) == 0
    halved(where, "one")
    runs = [train("two"), ["train", "--resume", str(where / "one-cut")]]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", spread.__file__, str(where)]
    done = subprocess.run(
        [*command, json.dumps(runs)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    halved(where, "two")
    assert cli.main(["train", "--resume", str(where / "two-cut")]) == 0
    return where


def halved(where, name):
    """A copy of the run as it was at its last checkpoint but one."""
    cut = where / f"{name}-cut"
    shutil.copytree(where / name, cut)
    shutil.rmtree(checkpoint.newest(cut))
    (cut / "summary.json").unlink()  # else it would be finished, and nothing resumed


def apart(one, two):
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)


@pytest.mark.slow
def test_gradients_weights_and_metrics_of_two_processes_are_those_of_one(single_thread, spread_out):
    data = torch.load(spread_out / "batches.pt", weights_only=False)
    first, second = (torch.load(spread_out / f"rank{rank}.pt") for rank in (0, 1))
    for name, shape, count in spread.CASES:
        one, two = spread.steps(name, data[shape][:count], SingleProcess()), first[name, shape]
        assert max(float(g.abs().max()) for g in one["gradients"].values()) > 1e-4, (
            name
        )  # there is something to compare
        assert apart(one["gradients"], two["gradients"]) < 1e-5, name
        # Muon makes a step of the smallest directions too, where sums in another order are all there is: 1e-6 of the rewards moves its
        # steps by 2 %, the order of two processes by up to 26 %.
        assert apart(one["weights"], two["weights"]) < (1e-4 if name == "muon" else 1e-5), name
        if name == "muon":
            for path, weight in spread.tensors(spread.Shallow().load()).items():
                moved = float((one["weights"][path] - weight).norm())
                assert moved > 0 and float((one["weights"][path] - two["weights"][path]).norm()) < 0.4 * moved, path
        assert not one["critic"] or apart(one["critic"], two["critic"]) < 1e-5, name
        for ours, theirs in zip(one["metrics"], two["metrics"], strict=True):
            assert theirs == pytest.approx(ours, rel=1e-4, abs=1e-5), name
        assert first[name, shape]["metrics"] == second[name, shape]["metrics"], name


@pytest.mark.slow
def test_mixed_precision_in_two_processes_keeps_weights_and_sums_in_float32(single_thread, spread_out):
    data = torch.load(spread_out / "batches.pt", weights_only=False)[spread.MIXED[1]]
    one = spread.steps(spread.MIXED[0], data, SingleProcess(), torch.bfloat16)
    two = torch.load(spread_out / "rank0.pt")["mixed"]
    exact = spread.steps(spread.MIXED[0], data, SingleProcess())["gradients"]
    for found in (one, two):
        for name, gradient in found["gradients"].items():
            assert gradient.dtype == torch.float32
            # Not the same way in both: weights that are no matrices are rounded too where they are gathered.
            assert 0 < float((gradient - exact[name]).norm()) < 0.1 * float(exact[name].norm()), name
        assert all(w.dtype == torch.float32 for w in found["weights"].values())
    finer = [g for g in two["gradients"].values() if not torch.equal(g, g.bfloat16().float())]
    assert len(finer) == len(two["gradients"])  # a sum in bfloat16 would have its 8 bits


def recorded(directory):
    return [deterministic(json.loads(line)) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_runs_and_checkpoints_of_two_processes_and_of_one_are_the_same(spread_out):
    expected, weights = recorded(spread_out / "one"), load_file(spread_out / "one" / "model" / "model.safetensors")
    assert len(expected) == 4 and max(row["grad_norm"] for row in expected) > 0.1
    for name in ("two", "two-cut", "one-cut"):
        for ours, theirs in zip(expected, recorded(spread_out / name), strict=True):
            assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-5), name
        assert apart(weights, load_file(spread_out / name / "model" / "model.safetensors")) < 1e-5, name
    kinds = [
        [
            type(value)
            for value in checkpoint.load(checkpoint.newest(spread_out / name))["learner"]["optimizers"]["policy"][
                "state"
            ][0].values()
        ]
        for name in ("one", "two")
    ]
    assert kinds[0] == kinds[1] == [torch.Tensor] * 3


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_dies_ends_the_other_with_a_sentence(tmp_path, dead):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", DIES.format(rank=dead), "train", *RUN, "--runs", str(tmp_path), "--name", "run"]
    started = [
        subprocess.Popen(
            [*command, "checkpoint_every=1"],
            env={**os.environ, **shared, "OMP_NUM_THREADS": "1", "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert started[dead].returncode == -signal.SIGKILL
    assert started[1 - dead].returncode == 2, said
    last = said[1 - dead].strip().splitlines()[-1]
    assert last.startswith(f"gimbal: rank {1 - dead} lost another rank") and "--resume" in last
    assert checkpoint.newest(tmp_path / "run").name == "step_000001"


def test_shares_are_even_and_keep_groups_together(single_thread):
    batch = spread.batches("three groups")[0]
    for count in (1, 2, 3, 5):
        dealt = shares(batch, count, whole_groups=True)
        assert sorted(row for rows in dealt for row in rows) == list(range(9))
        groups = [set(batch.group_N[rows].tolist()) for rows in dealt]
        assert sum(map(len, groups)) == 3  # none is in two shares
    cost = batch.decisions.cost_N
    split = [int(cost[rows].sum()) for rows in shares(batch, 2, whole_groups=False)]
    assert max(split) < 0.6 * sum(split)


def test_a_single_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert isinstance(join(), SingleProcess)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert isinstance(join(), SingleProcess)
