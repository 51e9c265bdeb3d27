"""vLLM on files of the zoo: it says what the native engine says. In `make test-vllm`; skipped without vllm."""

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))
from zoo_families import saved

from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.engines.vllm import VLLM
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task

WIDE = {"hidden_size": 128, "head_dim": 32}  # vLLM takes no narrower heads on a CPU
SPEC = VLLM(slots=4, precision="float32", cache_gb=0.1)

TRIED = ("llama",)  # the other families have not been run through vLLM yet


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_log_probabilities_are_those_of_the_native_engine(name, tmp_path):
    policy = CausalLM(model=str(saved(name, tmp_path, **WIDE))).load()
    engines = SPEC.start(policy), Native(slots=4, precision="float32").start(policy)
    for engine in engines:
        engine.load(0, policy.state_dict())
    vllm, native = engines
    for group in range(3):
        task = Task(id=f"task {group}", prompt=f"What is {group} times {group + 2}?")
        vllm.submit(Request(group=group, task=task, sample=0, sampling=Sampling(max_length=20), seed=0))
    rollouts = [item.rollout for item in drained(vllm).values()]
    assert max(rollout.length for rollout in rollouts) > 12, "longer than any window of theirs"
    for rollout in rollouts:
        torch.testing.assert_close(rollout.behavior_S, native.score(rollout), atol=1e-3, rtol=0)
