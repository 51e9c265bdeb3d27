"""Fingerprints: what differs in any bit, place, shape or type differs; what is the same is the same wherever it is."""

import copy
import struct

import pytest
import torch

from gimbal.engines import receipts
from gimbal.engines.episodes import Episodes
from gimbal.engines.native import Native
from gimbal.engines.receipts import differences, fingerprint, fingerprints, tensors
from gimbal.engines.vllm import taking
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.token import CausalLM, TokenPolicy


def by_hand(tensor):
    """The sums of the docstring, in Python's integers."""
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    data += b"\0" * (-len(data) % 8)
    words = struct.unpack(f"<{len(data) // 8}q", data)
    a, b = (factor.tolist() for factor in receipts._factors(torch.device("cpu")))
    low = high = 0
    for start in range(0, len(words), receipts.ROW):
        row = words[start : start + receipts.ROW]
        low = (low * receipts.FACTOR + sum(x * f for x, f in zip(row, a, strict=False))) % 2**64
        high = (high * receipts.FACTOR + sum((x >> 32) * f for x, f in zip(row, b, strict=False))) % 2**64
    return f"{low:016x}{high:016x}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.bool])
@pytest.mark.parametrize("size", [0, 1, 7, 2 * receipts.ROW + 3])
def test_it_is_the_sums_of_the_docstring(dtype, size):
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(1)).mul(3).to(dtype)
    assert fingerprint(tensor) == f"{str(dtype)[6:]}[{size}]:{by_hand(tensor)}"
    wide = torch.stack([tensor, tensor], dim=1)
    assert fingerprint(wide[:, 1]) == fingerprint(tensor)  # however it lies in memory
    assert fingerprint(torch.cat([tensor[:1], tensor])[len(tensor[:1]) :]) == fingerprint(tensor)


def test_a_device_sums_the_same():
    words = torch.randint(-(2**63), 2**63 - 1, (3 * receipts.ROW + 17,), generator=torch.Generator().manual_seed(0))
    whole_B = words.view(torch.uint8)
    for bytes_B in (whole_B, whole_B[:-3], whole_B[8:], whole_B[5:-1]):
        assert list(receipts._on_a_device(bytes_B)) == list(receipts._here(bytes_B))


def test_whatever_differs_differs():
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(96, 64, generator=draw)
    others = [base.t().contiguous(), base.view(64, 96), base.double(), base[:-1], base.roll(1, 0), base.flip(1), -base]
    for _ in range(300):
        bits = base.clone().view(torch.int32)
        place = torch.randint(bits.numel(), (4,), generator=draw)
        shift = torch.randint(32, (4,), generator=draw)
        bits.view(-1)[place[0]] ^= 1 << int(shift[0]) if shift[0] < 31 else -(2**31)
        others.append(bits.view(torch.float32))
    for i in range(0, 90, 6):  # an even number of flipped signs, in the upper halves of the integers and in the lower
        for step in (1, 2):
            flipped = base.clone()
            flipped.view(-1)[[i, i + step]] *= -1
            others.append(flipped)
    prints = [fingerprint(tensor) for tensor in (base, *others)]
    same = [i for i, tensor in enumerate(others) if tensor.dtype == base.dtype and torch.equal(tensor, base)]
    assert not same and prints.count(prints[0]) == 1


def test_bits_are_compared_and_not_numbers():
    zero = torch.zeros(3)
    assert fingerprint(zero) != fingerprint(-zero)
    nan = torch.tensor([1.0, float("nan")])
    assert fingerprint(nan) == fingerprint(nan.clone())


def test_what_differs_is_named():
    expected = fingerprints({"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(2), "d": torch.zeros(2)})
    found = fingerprints({"a": torch.zeros(2), "b": torch.ones(2), "c": torch.zeros(2, 1), "e": torch.zeros(1)})
    assert differences(expected, found) == [
        "b (other bits)",
        "c (float32[2, 1] for float32[2])",
        "d (missing)",
        "e (one too many)",
    ]


def test_positions_keep_their_frequencies_in_a_bfloat16_sampler():
    """They are no weights; cast to bfloat16 they would turn by another angle the further away a token is."""
    policy = CausalLM().load()
    engine = Native(slots=1, precision="bfloat16").start(policy)
    own, copied = policy.model.model.rotary_emb, engine.copy.module.model.rotary_emb
    assert torch.equal(own.inv_freq, copied.inv_freq) and copied.inv_freq.dtype == torch.float32
    assert copied.inv_freq.data_ptr() != own.inv_freq.data_ptr()
    assert next(engine.copy.module.parameters()).dtype == torch.bfloat16


def test_frequencies_that_a_forward_pass_changes_are_no_weights():
    policy = CausalLM().load()
    config = copy.deepcopy(policy.model.config)
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    config.max_position_embeddings = 32
    model = type(policy.model)(config).eval()
    engine = Native(slots=1, precision="float32").start(TokenPolicy(model, policy.tokenizer))
    engine.load(0, {f"model.{name}": tensor for name, tensor in model.state_dict().items()})
    before = engine.reading()
    assert before.prints == engine.manifest(tensors(TokenPolicy(model, policy.tokenizer)))
    frequencies = engine.copy.module.model.rotary_emb.inv_freq.clone()
    engine.copy.module(torch.ones(1, 64, dtype=torch.long))
    assert not torch.equal(frequencies, engine.copy.module.model.rotary_emb.inv_freq)
    assert engine.reading() == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sampler_in_environments_shows_what_it_holds(dtype):
    policy = Gaussian(observations=3, actions=2).load()
    engine = Episodes(dtype=dtype).start(policy)
    engine.load(4, policy.weights())
    assert engine.reading().version == 4
    assert engine.reading().prints == engine.manifest(tensors(policy))
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    assert len(differences(engine.manifest(tensors(policy)), engine.reading().prints)) == 1


def test_what_vllms_loader_takes_is_entered_as_it_takes_it():
    state, taken = {"model.a": torch.ones(3), "model.b": torch.zeros(2)}, {}
    loader = taking(state, taken)
    assert next(loader)[0] == "a" and taken == fingerprints({"model.a": torch.ones(3)})
    assert [name for name, _ in loader] == ["b"] and taken == fingerprints(state)
