"""A real server of vLLM, started by gimbal, against the native engine (`make test-vllm`); skipped where vllm is missing."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from asking import SAMPLINGS, drain, drawn, ids, moved, request
from small import small_run

from gimbal.engines import vllm_server
from gimbal.engines.native import Native
from gimbal.engines.vllm_server import VLLMServer
from gimbal.learning.weight_sync.memory import Memory
from gimbal.learning.weight_sync.proof import DeliveryProof, NotDelivered
from gimbal.policies.token import CausalLM
from gimbal.runtime.local import Trainer

DELAYS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # until something falls into the drawing, which is as fast as the machine is
SPEC = VLLMServer(slots=8, precision="float32", cache_gb=0.25, patience=60.0)


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


@pytest.fixture(scope="module")
def other():
    return moved()


@pytest.fixture(scope="module")
def shared(policy):
    """One server for all tests: it takes half a minute to start."""
    made = SPEC.start(policy)
    yield made
    made.close()


@pytest.fixture
def engine(shared, policy):
    shared.load(0, policy.state_dict())
    yield shared
    drain(shared)


@pytest.fixture(scope="module")
def native(policy):
    return Native(slots=8, precision="float32").start(policy)


@pytest.fixture
def endless(policy, monkeypatch):
    """Rollouts that run to their full length."""
    monkeypatch.setattr(policy.model.generation_config, "eos_token_id", [])


def test_logprobs_are_of_the_distribution_sampled_from(engine, native, policy):
    native.load(0, policy.state_dict())
    rollouts = drawn(
        engine, [request(group, sample, **kind) for group, kind in enumerate(SAMPLINGS) for sample in (0, 1)]
    )
    assert len(rollouts) == 2 * len(SAMPLINGS)
    for key, rollout in rollouts.items():
        rollout.validate()
        expected_S = native.score(rollout)
        torch.testing.assert_close(rollout.behavior_S, expected_S, atol=1e-3, rtol=0)
        assert rollout.text == policy.decode(ids(rollout))
        assert rollout.version_S.tolist() == [0] * rollout.length
        if key[1] == 0:
            torch.testing.assert_close(engine.score(rollout), expected_S, atol=1e-3, rtol=0)


def test_a_seed_gives_the_same_rollouts_and_greedy_is_the_native_engines(engine, native, policy):
    native.load(0, policy.state_dict())

    def tokens(seed, **kind):
        asked = [request(group, sample, seed=seed, **kind) for group in range(2) for sample in range(3)]
        return {key: ids(rollout) for key, rollout in drawn(engine, asked).items()}

    assert tokens(0, temperature=1.3) == tokens(0, temperature=1.3)
    assert tokens(0, temperature=1.3) != tokens(1, temperature=1.3)
    theirs = drawn(native, [request(group, temperature=0.0) for group in range(2)])
    mine = tokens(0, temperature=0.0)
    assert [mine[group, 0] for group in range(2)] == [ids(theirs[group, 0]) for group in range(2)]


def test_what_ends_a_rollout(engine, policy):
    ended = drawn(engine, [request(max_length=100)])[0, 0]
    assert ended.stop == "stop" and ids(ended)[-1] in policy.end_ids
    short = drawn(engine, [request(max_length=5)])[0, 0]
    assert (short.stop, short.length) == ("length", 5)
    marked = drawn(engine, [request(max_length=100, stop=("<answer>", "</"))])[0, 0]
    assert marked.stop == "stop"
    assert sum(marked.text.count(stop) for stop in ("<answer>", "</")) == 1
    assert ids(marked) == ids(ended)[: marked.length]


@pytest.mark.parametrize("cache", ["recompute", "keep"])
def test_versions_of_an_update_in_flight(shared, engine, native, policy, other, endless, cache, monkeypatch):
    """Each token has the version, and with rebuilt keys and values the log-probability, of the weights that drew it."""
    monkeypatch.setattr(shared, "spec", replace(SPEC, cache=cache))
    for seconds in DELAYS:
        engine.load(0, policy.state_dict())
        for sample in range(SPEC.slots + 2):  # some have not begun
            engine.submit(request(sample=sample, max_length=300, temperature=1.5))
        rollouts = {item.key: item.rollout for item in engine.step()}
        time.sleep(seconds)
        engine.load(1, other.state_dict())
        rollouts |= drain(engine)
        assert len(rollouts) == SPEC.slots + 2
        new = {key: int((rollout.version_S == 1).sum()) for key, rollout in rollouts.items()}
        if mixed := [rollouts[key] for key, count in new.items() if 20 < count < 280]:
            break
    assert mixed
    native.load(0, policy.state_dict())
    old = [native.score(rollout) for rollout in mixed]
    native.load(1, other.state_dict())
    for rollout, old_S in zip(mixed, old, strict=True):
        new_S, first = native.score(rollout), rollout.version_S == 0
        assert rollout.length == 300 and rollout.version_S.tolist() == sorted(rollout.version_S.tolist())
        torch.testing.assert_close(rollout.behavior_S[first], old_S[first], atol=1e-3, rtol=0)
        gap = float((rollout.behavior_S - new_S)[~first].abs().max())
        assert (gap < 1e-3) == (cache == "recompute"), gap
    late = rollouts[0, SPEC.slots + 1]
    assert set(late.version_S.tolist()) == {1}
    torch.testing.assert_close(late.behavior_S, native.score(late), atol=1e-3, rtol=0)  # no prefix of the old weights


def test_cancelled_with_what_was_drawn(engine, endless):
    for seconds in DELAYS:
        for sample in range(SPEC.slots + 1):
            engine.submit(request(sample=sample, max_length=300))
        finished = {item.key for item in engine.step()}
        assert engine.cancel((0, SPEC.slots)) is None  # it never began
        if (0, 0) in finished:
            drain(engine)
            continue
        time.sleep(seconds)
        before = engine.in_flight
        partial = engine.cancel((0, 0))
        assert partial.stop == "cancelled" and engine.in_flight == before - 1
        rest = drain(engine)
        assert finished | rest.keys() == {(0, sample) for sample in range(1, SPEC.slots)}
        if 0 < partial.length < 300:
            break
    assert 0 < partial.length < 300
    with pytest.raises(KeyError):
        engine.cancel((0, 0))


def test_resumed_draws_again_what_had_not_come_back(engine, policy):
    whole = drawn(engine, [request(sample=n, temperature=1.3) for n in range(SPEC.slots + 2)])
    for sample in range(SPEC.slots + 2):
        engine.submit(request(sample=sample, temperature=1.3))
    engine.done += engine.step()
    state = engine.state_dict()
    drain(engine)
    engine.load_state_dict(state)
    assert {key: ids(rollout) for key, rollout in drain(engine).items()} == {key: ids(r) for key, r in whole.items()}


def test_a_server_that_has_slept_draws_as_before(engine, policy):
    before = drawn(engine, [request(sample=n) for n in range(4)])
    engine.rest()
    assert engine.client.get("/is_sleeping")["is_sleeping"]
    engine.load(1, policy.state_dict())
    after = drawn(engine, [request(sample=n) for n in range(4)])
    assert {key: ids(rollout) for key, rollout in after.items()} == {
        key: ids(rollout) for key, rollout in before.items()
    }


def test_a_server_that_somebody_else_runs(engine, policy, other):
    """The same server by its address: as if it were not ours."""
    with pytest.raises(ValueError, match=r"samples in float32 and engine\.precision is bfloat16"):
        VLLMServer(url=engine.client.url).start(policy)
    with pytest.raises(ValueError, match=r"no vLLM server at http://127\.0\.0\.1:9"):
        VLLMServer(url="http://127.0.0.1:9", patience=0.1).start(policy)
    theirs = VLLMServer(url=engine.client.url, precision="float32", slots=4).start(policy)
    theirs.load(1, other.state_dict())
    proof = DeliveryProof(other, [*drawn(theirs, [request(n) for n in range(2)]).values()])
    assert proof(theirs, 1)["sync/gap"] < 1e-3
    theirs.close()
    assert engine.client.up(), "it was not ours to end"


def test_delivery_is_proved(engine, policy, other):
    canary = list(drawn(engine, [request(n, temperature=0.8) for n in range(4)]).values())
    proof, sync = DeliveryProof(other, canary), Memory()
    for version in range(1, 4):
        with torch.no_grad():
            other.model.model.layers[2].mlp.up_proj.weight.mul_(1.02)
        sync.publish(version, other.state_dict())
        sync.deliver(engine)
        metrics = proof(engine, version)
        assert metrics["sync/gap"] < 1e-3
    assert metrics["sync/slope"] == pytest.approx(1, abs=0.05)


PROOF = {  # by what it is found: the version, the canary, or the server's own checksums
    "lost": "at version 0, not 1",
    "one layer": "away from the trainer's on average",
    "half of it": "12 are not the trainer's",
    "a norm": "1 are not the trainer's",
    "somebody else's": "at version -1, not 1",
}


@pytest.mark.parametrize("broken", PROOF)
def test_a_broken_delivery_is_found(engine, policy, other, broken, monkeypatch):
    canary = list(drawn(engine, [request(n) for n in range(4)]).values())
    DeliveryProof(policy, canary)(engine, 0)
    proof, state = DeliveryProof(other, canary), dict(other.state_dict())
    names = {
        "one layer": "model.model.layers.3.self_attn.o_proj.weight",
        "a norm": "model.model.layers.1.input_layernorm.weight",
    }
    write = vllm_server.write_weights

    def partly(weights, names, directory):
        write(dict(list(weights.items())[: len(weights) // 2]), names, directory)

    if broken in names:
        state[names[broken]] = policy.state_dict()[names[broken]]
    if broken == "half of it":
        monkeypatch.setattr(vllm_server, "write_weights", partly)
    if broken == "lost":
        monkeypatch.setattr(engine, "_bring", lambda: None)
    engine.load(1, state)
    if broken == "somebody else's":
        engine.client.post("/update_weight_version", {"new_version": "another/1"})
    with pytest.raises(NotDelivered) as error:
        proof(engine, 1)
    assert PROOF[broken] in str(error.value)


def test_it_learns_and_outlives_its_server(capfd):
    """GRPO through a server of its own, which is killed while it draws: the run continues, and its weights reach the new one."""
    trainer = Trainer(
        small_run(engine=SPEC, policy=CausalLM(), max_staleness=1, ahead="full", prompts_per_step=4, num_generations=8)
    )
    scores, gaps, held = [], [], []
    try:
        trainer.begin()
        for step in range(8):
            if step == 3:
                keeper = _children(trainer.engine._own._process.pid)[0]
                group = os.getpgid(_children(keeper)[0])
                threading.Timer(0.2, os.killpg, (group, signal.SIGKILL)).start()
            metrics, groups, _ = trainer.advance()
            scores.append(sum(float(group.score_G.mean()) for group in groups) / len(groups))
            gaps.append(metrics["sync/gap"])
            held.append(trainer.engine._checksums()["model.norm.weight"])
            assert sum(len(group.episodes) for group in groups) == 32
            assert metrics["staleness/max"] <= 1
    finally:
        trainer.close()
    assert max(gaps) < 1e-3
    assert len(set(held)) == len(held), "each step's weights are in the server"
    assert "is lost" in capfd.readouterr().err
    assert sum(scores[-2:]) > sum(scores[:2]), scores


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
