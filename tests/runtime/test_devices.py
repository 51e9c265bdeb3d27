"""Learner and samplers on GPUs: what is refused here, where there is none, and what is made of the field where there are some."""

import pytest
import torch
from small import small_run

from gimbal.engines.native import Native, NativeEngine
from gimbal.engines.vllm import VLLM
from gimbal.engines.vllm_http import _environment
from gimbal.engines.vllm_server import VLLMServer
from gimbal.runtime.compose import check
from gimbal.runtime.devices import Devices, placed
from gimbal.runtime.local import Trainer
from gimbal.runtime.ray import Ray

SERVER = VLLMServer(precision="float32")


@pytest.mark.parametrize(
    ("gpus", "changes", "said"),
    [
        (0, {"devices": Devices()}, r"needs 2 GPUs on this machine .* but it has 0: lower them, or drop devices="),
        (1, {"devices": Devices()}, "it has 1"),
        (8, {"devices": Devices(samplers=2)}, r"runtime=Ray\(\)"),
        (
            8,
            {"devices": Devices(gpus=2)},
            r"share one model, but Native samples on one device: set engine=VLLMServer\(\)",
        ),
        (8, {"devices": Devices(), "engine": VLLMServer(url="http://a:1")}, "has its own GPUs"),
        (8, {"devices": Devices(), "engine": VLLM()}, "cannot place VLLM"),
        (8, {"devices": Devices(turns=True), "max_staleness": 1}, "work at once"),
        (8, {"devices": Devices(learner=2)}, "torchrun --nproc-per-node 2"),
    ],
)
def test_refused_with_the_way_out(monkeypatch, gpus, changes, said):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError, match=said):
        check(small_run(**changes))


@pytest.mark.parametrize(
    ("gpus", "changes"),
    [
        (2, {"devices": Devices()}),
        (1, {"devices": Devices(turns=True)}),
        (3, {"devices": Devices(gpus=2), "engine": SERVER}),
        (5, {"devices": Devices(samplers=2, gpus=2), "engine": SERVER, "runtime": Ray()}),
        (1, {"devices": Devices(samplers=8), "runtime": Ray(address="auto")}),  # on other machines
    ],
)
def test_taken_where_there_are_gpus(monkeypatch, gpus, changes):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert not [advice for advice in check(small_run(**changes)) if "devices" in advice]


def test_what_is_made_of_it(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert placed(small_run()).engine.device == ""
    assert placed(small_run(devices=Devices())).engine.device == "cuda:1"
    assert placed(small_run(devices=Devices(turns=True))).engine.device == "", "the learner's"
    server = placed(small_run(devices=Devices(gpus=2), engine=SERVER)).engine
    assert (server.gpus, server.tensor_parallel, server.offload) == ("1,2", 2, False)
    turns = placed(small_run(devices=Devices(turns=True), engine=SERVER)).engine
    assert (turns.gpus, turns.offload) == ("0", True)
    ray = placed(small_run(devices=Devices(samplers=3, gpus=2), engine=SERVER, runtime=Ray()))
    assert (ray.runtime.workers, ray.runtime.gpus, ray.engine.gpus, ray.engine.tensor_parallel) == (3, 2.0, "", 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    again = placed(small_run(devices=Devices(gpus=2), engine=SERVER)).engine
    assert again.gpus == "5,7" and _environment(again.gpus)["CUDA_VISIBLE_DEVICES"] == "5,7"
    with pytest.raises(ValueError, match="each must be at least 1"):
        Devices(samplers=0)


@pytest.mark.slow
def test_in_turns_the_run_is_the_same_bit_for_bit(monkeypatch):
    """The sampler gives its cache back before each learner step, and what it draws afterwards does not depend on that."""
    rested = []
    rest = NativeEngine.rest
    monkeypatch.setattr(NativeEngine, "rest", lambda engine: (rest(engine), rested.append(len(engine.slots.keys))))

    def trained(**changes):
        trainer = Trainer(small_run(engine=Native(slots=12, precision="float32"), **changes))
        try:
            return [trainer.advance()[0]["loss"] for _ in range(3)], trainer.learner.policy.state_dict()
        finally:
            trainer.close()

    (losses, weights), (expected, others) = trained(devices=Devices(turns=True)), trained()
    assert losses == expected and all(torch.equal(weights[name], others[name]) for name in weights)
    assert rested == [0, 0, 0], "nothing is left of keys and values"
