"""Sparse deltas: the receiver's bits equal the cast weights, whatever was lost, torn, damaged, repeated or restarted on the way."""

import contextlib
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.engines.base import AbstractEngine
from gimbal.learning.weight_sync import sparse
from gimbal.learning.weight_sync.delta import Packet, Receiver, Sender, SyncError
from gimbal.learning.weight_sync.sparse import FileSync, Sparse
from gimbal.runtime.local import Trainer


def weights(seed=0, size=3000):
    draw = torch.Generator().manual_seed(seed)
    return {
        "matrix": torch.randn(size // 50, 50, generator=draw) * 0.02,
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "counter": torch.arange(5),
        "mask": torch.tensor([True, False]),
    }


def moved(state, rate, seed):
    draw = torch.Generator().manual_seed(seed)
    return {
        n: t + rate * torch.randn(t.shape, generator=draw) if t.is_floating_point() else t for n, t in state.items()
    }


def same_bits(found, state, dtype):
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        cast = tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
        assert found[name].dtype == cast.dtype and found[name].shape == cast.shape
        as_bytes = [t.contiguous().view(-1).view(torch.uint8) for t in (found[name], cast)]
        assert torch.equal(*as_bytes), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, None])
@pytest.mark.parametrize("rate", [0.0, 1e-6, 1e-4, 1e-2, 1.0])
def test_what_is_received_is_what_was_cast_to_the_last_bit(dtype, rate):
    sender, receiver, state = Sender(dtype), Receiver(), weights()
    for version in range(4):
        sender.publish(version, state)
        receiver.catch_up(sender.since)
        assert receiver.stamp == sender.stamp and receiver.stamp[0] == version
        same_bits(receiver.state, state, dtype)
        state = moved(state, rate, version)


def test_bits_count_and_not_numbers():
    """0.0 and -0.0 are equal and must travel; a NaN is unequal to itself and need not; its payload must survive."""
    odd = torch.tensor([0x7FC1, 0x0001, 0x7F80], dtype=torch.int16).view(
        torch.bfloat16
    )  # NaN with a payload, denormal, inf
    before = {"w": torch.cat([odd, torch.zeros(5, dtype=torch.bfloat16)])}
    after = {"w": before["w"].clone()}
    after["w"][4] = -0.0
    sender, receiver = Sender(), Receiver()
    sender.publish(0, before)
    receiver.catch_up(sender.since)
    packet = sender.publish(1, after)
    receiver.apply(packet)
    assert packet.share == 1 / 8
    same_bits(receiver.state, after, None)
    wrapped = {"w": torch.tensor([-32768, 32767, -1, 0], dtype=torch.int16).view(torch.bfloat16)}
    other = {"w": torch.tensor([32767, -32768, 0, -1], dtype=torch.int16).view(torch.bfloat16)}
    sender, receiver = Sender(), Receiver()
    for version, state in enumerate((wrapped, other)):
        sender.publish(version, state)
        receiver.catch_up(sender.since)
        same_bits(receiver.state, state, None)


def test_small_steps_move_few_bytes_and_large_ones_fall_back_to_whole_tensors():
    state = weights(size=1_000_000)
    sender = Sender()
    full = sender.publish(0, state)
    assert full.base is None and full.nbytes >= 2 * 1_000_000
    tiny = sender.publish(1, moved(state, 1e-7, 1))
    assert tiny.nbytes * 50 < full.nbytes
    noise = torch.from_numpy(np.random.default_rng(0).integers(-(2**15), 2**15, 1_000_000, dtype=np.int16))
    other = state | {"matrix": noise.view(torch.bfloat16).view(-1, 50)}
    whole = sender.publish(2, other)  # all bits are other ones: no delta is smaller than the tensor
    assert abs(whole.nbytes - full.nbytes) < 1000 and whole.base == tiny.stamp
    receiver = Receiver()
    receiver.catch_up(sender.since)
    assert receiver.received == sender.full().nbytes  # one full copy, not a chain of deltas as large as two
    same_bits(receiver.state, other, torch.bfloat16)


def test_tied_weights_travel_once_and_arrive_under_both_names():
    state = weights()
    state["tied"] = state["matrix"]
    sender, receiver = Sender(), Receiver()
    assert sender.publish(0, state).nbytes < 1.5 * 2 * state["matrix"].numel()
    receiver.catch_up(sender.since)
    same_bits(receiver.state, state, torch.bfloat16)


def test_another_set_of_tensors_is_a_full_copy():
    sender, receiver = Sender(), Receiver()
    sender.publish(0, weights())
    receiver.catch_up(sender.since)
    grown = weights(size=4000) | {"new": torch.ones(3)}
    assert sender.publish(1, grown).base is None
    receiver.catch_up(sender.since)
    same_bits(receiver.state, grown, torch.bfloat16)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.integers(1, 5))
def test_lost_repeated_and_swapped_packets_restarts_and_new_lives_never_lead_to_wrong_bits(seed, keep):
    """Pushed packets are delivered, lost, repeated and re-ordered; a question brings the receiver to the newest bits every time."""
    draw = random.Random(seed)
    state, version = weights(seed), 0
    sender, receiver, pushed, history = Sender(keep=keep), Receiver(), [], {}
    for turn in range(30):
        what = draw.choice(["publish", "publish", "push", "push", "ask", "restart", "new life"])
        if what == "publish":
            state, version = moved(state, draw.choice([0.0, 1e-6, 1e-3]), turn), version + 1
            pushed.append(sender.publish(version, state))
            history[sender.stamp] = state
        elif what == "push" and pushed:
            with contextlib.suppress(SyncError):
                receiver.apply(draw.choice(pushed))
        elif what == "restart":
            receiver = Receiver()
        elif what == "new life" and version:
            state, version = moved(state, 1e-3, turn + 1000), draw.randint(0, version)
            sender = Sender(keep=keep)
            pushed.append(sender.publish(version, state))
            history[sender.stamp] = state
        elif what == "ask" and sender.stamp:
            receiver.catch_up(sender.since)
            assert receiver.stamp == sender.stamp
        if receiver.stamp is not None:
            same_bits(receiver.state, history[receiver.stamp], torch.bfloat16)


def test_a_damaged_packet_is_refused_before_anything_is_touched():
    sender, receiver, state = Sender(), Receiver(), weights()
    sender.publish(0, state)
    receiver.catch_up(sender.since)
    packet = sender.publish(1, moved(state, 1e-4, 1))
    bucket = bytearray(packet.buckets[0])
    bucket[-3] ^= 1
    with pytest.raises(SyncError, match="damaged"):
        receiver.apply(replace(packet, buckets=(bytes(bucket),)))
    same_bits(receiver.state, state, torch.bfloat16)
    receiver.apply(packet)


def test_memory_that_drifted_is_noticed_and_replaced():
    """A bit flips in what the receiver holds: the next delta leads to other bits than were sent, and a full copy fixes it."""
    sender, receiver, state = Sender(), Receiver(), weights()
    sender.publish(0, state)
    receiver.catch_up(sender.since)
    receiver.state["matrix"][3, 7] += 1
    state = moved(state, 1e-6, 1)
    packet = sender.publish(1, state)
    receiver.catch_up(sender.since)
    same_bits(receiver.state, state, torch.bfloat16)
    assert receiver.received > packet.nbytes + 2 * sender.full().nbytes - 100


def test_large_states_are_cut_into_buckets(monkeypatch):
    monkeypatch.setattr("gimbal.learning.weight_sync.delta.BUCKET", 1000)
    sender, receiver = Sender(), Receiver()
    state = {f"layer{n}": t for n, t in enumerate(torch.randn(5, 400))}
    state["tied"] = state["layer3"]
    for version in range(3):
        packet = sender.publish(version, state)
        assert len(packet.buckets) > 1 or version
        receiver.catch_up(sender.since)
        same_bits(receiver.state, state, torch.bfloat16)
        for n in range(5):
            state[f"layer{n}"] += 1e-3


def names(directory):
    return sorted(path.name for path in directory.iterdir())


class Sink(AbstractEngine):
    """What an engine is to a sync: somewhere to load."""

    def load(self, version, state):
        self.loaded, self.state = version, {name: tensor.clone() for name, tensor in state.items()}


Sink.__abstractmethods__ = frozenset()


def test_files_serve_readers_that_keep_up_come_late_and_come_back(tmp_path):
    learner, state = FileSync(tmp_path, full_every=3), weights()
    steady, reader = Sink(), FileSync(tmp_path)
    with pytest.raises(SyncError, match="no weights yet"):
        reader.deliver(steady)
    for version in range(11):
        learner.publish(version, state)
        assert sum(name.endswith("full") for name in names(tmp_path)) <= 2 and len(names(tmp_path)) <= 9
        reader.deliver(steady)
        late = Sink()
        FileSync(tmp_path).deliver(late)
        for sink in (steady, late):
            assert sink.loaded == version
            same_bits(sink.state, state, torch.bfloat16)
        state = moved(state, 1e-5, version)
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_a_learner_that_starts_again_takes_its_readers_back(tmp_path):
    first, sink, reader, state = FileSync(tmp_path), Sink(), FileSync(tmp_path), weights()
    for version in range(5):
        first.publish(version, state := moved(state, 1e-5, version))
        reader.deliver(sink)
    again = weights(seed=5)
    second = FileSync(tmp_path)
    second.publish(3, again)
    reader.deliver(sink)
    assert sink.loaded == 3
    same_bits(sink.state, again, torch.bfloat16)
    second.publish(4, again := moved(again, 1e-5, 9))
    reader.deliver(sink)
    same_bits(sink.state, again, torch.bfloat16)


def test_a_torn_write_is_never_read_and_damage_on_disk_falls_back_to_the_full_copy(tmp_path, monkeypatch):
    learner, sink, reader, state = FileSync(tmp_path), Sink(), FileSync(tmp_path), weights()
    learner.publish(0, state)
    reader.deliver(sink)
    durable, calls = sparse._durable, []

    def full_disk(path, data):
        calls.append(path)
        durable(path, data[: len(data) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(sparse, "_durable", full_disk)
    with pytest.raises(OSError):
        learner.publish(1, moved(state, 1e-5, 1))
    monkeypatch.setattr(sparse, "_durable", durable)
    reader.deliver(sink)
    assert calls and sink.loaded == 0
    learner.publish(2, state := moved(state, 1e-5, 2))  # its base was never written, so there is a full copy as well
    reader.deliver(sink)
    same_bits(sink.state, state, torch.bfloat16)
    assert sink.loaded == 2
    fresh = FileSync(tmp_path)
    fresh.publish(3, state)
    fresh.publish(4, state := moved(state, 1e-5, 3))
    reader.deliver(sink)
    same_bits(sink.state, state, torch.bfloat16)
    fresh.publish(5, moved(state, 1e-5, 4))
    [bucket] = (tmp_path / "v00000005.delta").glob("*.safetensors")
    bucket.write_bytes(bucket.read_bytes()[:-1] + b"x")
    with pytest.raises(SyncError, match="damaged"):
        reader.deliver(sink)  # nothing leads to version 5 any more, and it says so
    assert json.loads((tmp_path / "v00000005.delta" / "head.json").read_text())["stamp"][0] == 5


def test_a_packet_can_be_pickled_for_a_queue_or_an_object_store():
    import pickle

    sender, receiver = Sender(), Receiver()
    packet = pickle.loads(pickle.dumps(sender.publish(0, weights())))
    assert isinstance(packet, Packet)
    receiver.apply(packet)
    same_bits(receiver.state, weights(), torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("sync", [Sparse(dtype="float32"), Sparse()])
def test_a_run_over_deltas_is_the_run_without_them(sync, single_thread, tmp_path):
    """Float32 deltas lose nothing; bfloat16 deltas round as a bfloat16 sampler does anyway."""
    engine = replace(small_run().engine, precision=sync.dtype)
    runs = [small_run(engine=engine, sync=s) for s in (small_run().sync, sync, replace(sync, directory=str(tmp_path)))]
    steps = [[trainer.advance()[0] for _ in range(2)] for trainer in map(Trainer, runs)]
    for direct, *others in zip(*steps, strict=True):
        for other in others:
            assert other["loss"] == direct["loss"] and other["reward/mean"] == direct["reward/mean"]
            assert other["sync/bytes"] > 0 and "sync/bytes" not in direct
