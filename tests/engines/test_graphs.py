"""Graphs without a GPU: what a pass does is recorded op by op, with the very tensors, and replayed into them."""

from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gimbal.engines import graphs
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task

WAITS = ("item", "_local_scalar_dense", "nonzero", "is_nonzero")  # ask the device, which nothing that is recorded may


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in WAITS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


def storages(tree):
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


class Emulated(torch.cuda.CUDAGraph):
    """A graph whose replay computes into the tensors of its recording, as a GPU's does."""

    made = 0

    def __new__(cls):
        return object.__new__(cls)

    def __init__(self):
        self.calls = []

    @torch.inference_mode()
    def replay(self):
        for func, args, kwargs, out in self.calls:
            given = {x.untyped_storage().data_ptr() for x in storages((args, kwargs))}
            if func._schema.is_mutable:
                func(*args, **kwargs)
            elif not all(
                x.untyped_storage().data_ptr() in given for x in storages(out)
            ):  # a view has nothing to compute
                for held, new in zip(storages(out), storages(func(*args, **kwargs)), strict=True):
                    held.copy_(new)


@contextmanager
def recording(graph, pool, capture_error_mode):
    Emulated.made += 1
    with Recorder() as recorder:
        yield
    graph.calls = recorder.calls


@pytest.fixture
def emulated(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Emulated)
    monkeypatch.setattr(torch.cuda, "graph", recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    Emulated.made = 0


POLICY = CausalLM().load()


def sampled(*, slots, replayed, cache="keep"):
    """40 rollouts of various lengths: rows start, end and move, the cache grows, and other weights arrive in the middle."""
    engine = Native(slots=slots, precision="float32", cache=cache).start(POLICY)
    if replayed:
        engine.decoder.graphs = graphs.Graphs(engine.copy.module, engine.slots)
    engine.load(0, POLICY.weights())
    other = {name: weight * 1.02 for name, weight in POLICY.weights().items()}
    for index in range(40):
        task = Task(id=str(index), prompt=f"{index} + {7 * index} =\n")
        sampling = Sampling(max_length=5 + 7 * index % 60)
        engine.submit(Request(group=index, task=task, sample=0, sampling=sampling, seed=0))
    found = {}
    for _ in range(30):
        found |= {item.key: item.rollout for item in engine.step()}
    engine.load(1, other)
    return found | {key: item.rollout for key, item in drained(engine).items()}


@pytest.mark.parametrize(("slots", "cache"), [(1, "keep"), (7, "recompute"), (16, "keep"), (24, "recompute")])
def test_replayed_passes_are_those_of_the_present_weights_rows_and_cache(emulated, slots, cache):
    replayed = sampled(slots=slots, replayed=True, cache=cache)
    assert Emulated.made > 2
    plain = sampled(slots=slots, replayed=False, cache=cache)
    for key, wanted in plain.items():
        assert replayed[key].text == wanted.text and torch.equal(replayed[key].version_S, wanted.version_S)
        torch.testing.assert_close(replayed[key].behavior_S, wanted.behavior_S, atol=1e-4, rtol=0)


def test_a_cache_that_was_freed_ends_its_graphs(emulated):
    engine = Native(slots=4, precision="float32").start(POLICY)
    engine.decoder.graphs = kept = graphs.Graphs(engine.copy.module, engine.slots)
    for version in range(2):
        engine.load(version, POLICY.weights())
        engine.submit(
            Request(group=0, task=Task(id="a", prompt="1 + 2 =\n"), sample=0, sampling=Sampling(max_length=9), seed=0)
        )
        drained(engine)
        assert kept._graphs
        engine.rest()
        assert not kept._graphs and kept._logits_BV is None


def test_a_model_that_cannot_be_recorded_is_told_the_way_out(emulated):
    engine = Native(slots=4, precision="float32").start(POLICY)
    engine.decoder.graphs = graphs.Graphs(engine.copy.module, engine.slots)
    engine.load(0, POLICY.weights())
    engine.copy.module.register_forward_pre_hook(lambda *_: torch.zeros(1).item() or None)
    engine.submit(
        Request(group=0, task=Task(id="a", prompt="1 + 2 =\n"), sample=0, sampling=Sampling(max_length=9), seed=0)
    )
    with pytest.raises(ValueError, match=r"cannot be recorded as a CUDA graph: engine\.graphs=false"):
        drained(engine)
