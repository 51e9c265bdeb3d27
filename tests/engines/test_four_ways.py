"""One recipe by vLLM in process and by a vLLM server, against the native engine (`make test-vllm`); on Ray: tests/runtime/test_ray.py.

And a vLLM server beside a learner in two processes, and behind a worker of Ray.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from four import STEPS, run
from safetensors.torch import load_file

from gimbal import cli
from gimbal.engines.vllm import VLLM
from gimbal.engines.vllm_server import VLLMServer
from gimbal.runtime.ray import Ray

VALUES = {"slots": 12, "precision": "float32", "cache_gb": 0.25}


@pytest.fixture(scope="module")
def native():
    return run()


@pytest.fixture(scope="module")
def in_process():
    return run(engine=VLLM(**VALUES))


def agrees(metrics, texts, scores, weights, native):
    """The sampler draws what it says, by the trainer, and as well as the native engine does."""
    assert all(step["sync/gap"] < 1e-3 and step["mismatch/prob_diff"] < 1e-3 for step in metrics)
    assert abs(scores[0] - native[2][0]) < 0.15, (
        "drawn with the same weights; the mean of 32 scores has an error of 0.03"
    )
    moved = [float((weights[name] - native[3][name]).abs().max()) for name in weights]
    assert max(moved) < 2.02 * STEPS * 1e-3, "Adam moves no weight by more than its rate, and one may go the other way"


def test_in_process(native, in_process):
    agrees(*in_process, native)


def test_a_server_draws_what_vllm_in_process_draws_and_reaches_its_weights(native, in_process):
    metrics, texts, scores, weights = run(engine=VLLMServer(**VALUES))
    agrees(metrics, texts, scores, weights, native)
    assert texts == in_process[1] and len({text for step in texts for text in step}) > 60
    gaps = torch.cat([(weights[name] - in_process[3][name]).abs().flatten() for name in weights])
    print("largest, mean gap", float(gaps.max()), float(gaps.mean()))
    assert float(gaps.mean()) < 1e-6


def test_a_learner_in_two_processes_beside_a_server(tmp_path):
    """Rank 0 starts the server and gives it the weights whole: the run of one process with a server, but for the order of its sums."""
    engine = 'engine=VLLMServer(slots=9, precision="float32", cache_gb=0.25)'
    words = [
        "train",
        "grpo",
        "steps=2",
        "prompts_per_step=3",
        "num_generations=3",
        "held_out=None",
        "threads=1",
        engine,
    ]
    words += ["sampling.max_length=40", "epsilon=1e-6", "max_staleness=0", "--runs", str(tmp_path), "--name"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "gimbal", *words, "two"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert cli.main([*words, "one"]) == 0
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    for mine, theirs in zip(two, one, strict=True):
        assert (
            mine["reward/mean"] == theirs["reward/mean"]
            and mine["tokens"] == theirs["tokens"]
            and mine["sync/gap"] < 1e-3
        )
        assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("two", "one"))
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-5


def test_a_worker_of_ray_with_a_server_of_its_own(in_process):
    pytest.importorskip("ray")
    metrics, texts, _, _ = run(engine=VLLMServer(**VALUES), runtime=Ray(workers=1))
    assert texts == in_process[1]
    assert all(step["sync/gap"] < 1e-3 and step["sync/receipts"] for step in metrics)
