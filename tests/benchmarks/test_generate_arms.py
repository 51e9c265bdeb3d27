"""benchmarks/generate.py: every arm counts the tokens of its answers, the ending one included and the padding not."""

import argparse
import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[2] / "benchmarks" / "generate.py"
    spec = importlib.util.spec_from_file_location("benchmark_generate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["native", "generate", "generate_batch"])
def test_mean_length_is_what_was_asked_for(script, arm):
    policy = script.CausalLM().load()
    script.end_by_chance(
        policy, 2.0
    )  # every second token ends: with 8 at most, the widest of a batch would count 6 or more
    tasks = [script.training_tasks()[i] for i in range(64)]
    o = argparse.Namespace(slots=32, longest=8)
    tokens, seconds = getattr(script, arm)(policy, tasks, o, *(["float32"] if arm == "native" else []))
    assert 90 < tokens < 170  # 128 in the mean, with a deviation of 11
    assert seconds > 0
