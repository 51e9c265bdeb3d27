"""benchmarks/gpu.py on the CPU, at no size: what it will measure is measured, and its arithmetic is right."""

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def gpu():
    """The script as a module; benchmarks/ is no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("benchmark_gpu", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_figure_is_measured(gpu):
    result = gpu.measure(gpu.TINY, CPU)
    assert [row["rollouts"] for row in result["generation"]] == [8, 16]
    rows = [*result["generation"], *result["training"]]
    assert all(math.isfinite(figure) and figure >= 0 for row in rows for figure in row.values())
    assert not any("mfu" in row for row in rows)  # no peak is claimed for a CPU
    table = gpu.report(result)
    assert "training (liger False): tokens_per_s" in table and "not measured" in table
    assert "generation (rollouts 16, graphs False, liger False): prefill_s" in table


def test_sampler_and_trainer_agree_on_what_was_generated(gpu):
    policy = gpu.make_policy(gpu.TINY, CPU)
    _, groups = gpu.generate(policy, gpu.TINY, 16, CPU)
    assert [len(group.rollouts) for group in groups] == [8, 8]
    assert gpu.train(policy, gpu.TINY, groups, CPU)["largest_logp_gap"] < 0.05


def test_flops_of_a_step_by_hand(gpu):
    size = gpu.Size(hidden=8, layers=1, heads=2, vocabulary=103, prompt=3, decisions=2)
    policy = gpu.make_policy(size, CPU)
    # Queries 8x16, keys and values 8x8 each, output 16x8, three matrices 8x24; the head 8x103 works on decisions only.
    body = 8 * 16 + 2 * 8 * 8 + 16 * 8 + 3 * 8 * 24
    assert gpu.step_flops(policy, size, rows=4) == 4 * (6 * (body * 5 + 8 * 103 * 2) + 6 * 5**2 * 16)
