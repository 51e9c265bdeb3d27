"""vLLM against the native engine, in an environment of its own (`make test-vllm`); skipped where vllm is missing."""

import json
import sys
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from asking import LONG, SAMPLINGS, drain, drawn, ids, moved, request
from small import small_run

from gimbal.engines.native import Native
from gimbal.engines.vllm import VLLM, VLLMEngine
from gimbal.learning.weight_sync.memory import Memory
from gimbal.learning.weight_sync.proof import DeliveryProof, NotDelivered
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.runtime.local import Trainer
from gimbal.serve.server import CompletionServer

SPEC = VLLM(slots=8, precision="float32", cache_gb=0.25)


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


@pytest.fixture(scope="module")
def other():
    return moved()


@pytest.fixture(scope="module")
def shared(policy):
    """One engine for all tests: vLLM takes seconds to start."""
    before = torch.get_rng_state()
    made = SPEC.start(policy)
    assert torch.equal(before, torch.get_rng_state()), "the trainer's random state is its own"
    return made


@pytest.fixture
def engine(shared, policy):
    shared.load(0, policy.state_dict())
    yield shared
    drain(shared)


@pytest.fixture(scope="module")
def native(policy):
    return Native(slots=8, precision="float32").start(policy)


def test_logprobs_are_of_the_distribution_sampled_from(engine, native, policy):
    """Drawn side by side in one batch: each row is of its own sampling."""
    native.load(0, policy.state_dict())
    requests = [request(group, sample, **kind) for group, kind in enumerate(SAMPLINGS) for sample in range(3)]
    rollouts = drawn(engine, requests)
    assert len(rollouts) == 3 * len(SAMPLINGS)
    for rollout in rollouts.values():
        rollout.validate()
        expected_S = native.score(rollout)
        torch.testing.assert_close(rollout.behavior_S, expected_S, atol=1e-3, rtol=0)
        torch.testing.assert_close(engine.score(rollout), expected_S, atol=1e-3, rtol=0)
        assert rollout.text == policy.decode(ids(rollout))
        prompt = rollout.decisions.ids_NL[0, : int(rollout.decisions.prompt_N[0])].tolist()
        assert prompt == policy.encode_task(rollout.task)


def test_tokens_are_drawn_with_the_probabilities_recorded(engine):
    """512 draws of one token: the frequencies are those that the log-probabilities say."""
    count = 512
    rollouts = drawn(engine, [request(sample=n, max_length=1, temperature=1.5) for n in range(count)])
    seen = Counter(ids(rollout)[0] for rollout in rollouts.values())
    probability = {ids(r)[0]: float(r.behavior_S[0].exp()) for r in rollouts.values()}
    assert len(seen) > 3
    for token, p in probability.items():
        assert abs(seen[token] - count * p) < 5 * (count * p * (1 - p)) ** 0.5 + 1, (token, seen[token], count * p)


def test_greedy_is_the_native_engines_choice(engine, native, policy):
    native.load(0, policy.state_dict())
    requests = [request(group, temperature=0.0) for group in range(4)]
    mine, theirs = drawn(engine, requests), drawn(native, requests)
    assert {key: ids(rollout) for key, rollout in mine.items()} == {
        key: ids(rollout) for key, rollout in theirs.items()
    }


def test_a_seed_gives_the_same_rollouts_and_another_others(engine):
    def tokens(seed):
        requests = [request(group, sample, seed=seed, temperature=1.3) for group in range(3) for sample in range(4)]
        return {key: ids(rollout) for key, rollout in drawn(engine, requests).items()}

    assert tokens(0) == tokens(0)
    assert tokens(0) != tokens(1)
    alone = drawn(engine, [request(1, 2, seed=0, temperature=1.3)])
    assert ids(alone[1, 2]) == tokens(0)[1, 2]


def test_what_ends_a_rollout(engine, policy):
    ended = drawn(engine, [request(max_length=100)])[0, 0]
    assert ended.stop == "stop"
    assert ids(ended)[-1] in policy.end_ids
    assert not set(ids(ended)[:-1]) & set(policy.end_ids)
    short = drawn(engine, [request(max_length=5)])[0, 0]
    assert (short.stop, short.length) == ("length", 5)
    assert ids(short) == ids(ended)[:5]
    marked = drawn(engine, [request(max_length=100, stop=("<answer>", "</"))])[0, 0]
    assert marked.stop == "stop"
    assert sum(marked.text.count(stop) for stop in ("<answer>", "</")) == 1
    assert ids(marked) == ids(ended)[: marked.length]


def test_versions_of_an_update_in_flight(shared, engine, native, policy, other):
    """Each token has the version, and with rebuilt keys and values the log-probability, of the weights that drew it."""
    native.load(0, policy.state_dict())
    for cache in ("recompute", "keep"):
        shared.spec = replace(SPEC, cache=cache)
        engine.load(0, policy.state_dict())
        engine.submit(request(prompt=LONG, max_length=12, temperature=2.0))
        for _ in range(4):
            engine.step()
        engine.load(1, other.state_dict())
        engine.submit(request(sample=1, prompt=LONG, max_length=12, temperature=2.0))
        rollouts = drain(engine)
        rollout, late = rollouts[0, 0], rollouts[0, 1]
        assert rollout.version_S.tolist() == [0] * 4 + [1] * (rollout.length - 4)
        assert set(late.version_S.tolist()) == {1}
        native.load(0, policy.state_dict())
        torch.testing.assert_close(rollout.behavior_S[:4], native.score(rollout)[:4], atol=1e-3, rtol=0)
        native.load(1, other.state_dict())
        torch.testing.assert_close(late.behavior_S, native.score(late), atol=1e-3, rtol=0)  # no old prefix
        gap = float((rollout.behavior_S[4:] - native.score(rollout)[4:]).abs().max())
        assert (gap < 1e-3) == (cache == "recompute"), (cache, gap)
    shared.spec = SPEC


def test_a_group_shares_its_prompt(engine, monkeypatch):
    cached = {}
    step = engine.vllm.step

    def watched():
        outputs = step()
        cached.update({output.request_id: output.num_cached_tokens for output in outputs})
        return outputs

    monkeypatch.setattr(engine.vllm, "step", watched)
    drawn(engine, [request(sample=n, prompt=LONG, max_length=4) for n in range(4)])
    assert sorted(count > 0 for count in cached.values()) == [False, True, True, True]


def test_prompts_beyond_one_step_of_vllm(engine):
    """More tokens of prompts than vLLM takes in one step, between requests that are being decoded."""
    engine.submit(request(group=99, max_length=30, temperature=1.5))
    engine.step()
    rollouts = drawn(engine, [request(n, prompt=f"{n} " + LONG + LONG[:80], max_length=3) for n in range(20)])
    assert len(rollouts) == 21


def test_cancelled(engine):
    for sample in range(SPEC.slots + 1):
        engine.submit(request(sample=sample, max_length=60))
    for _ in range(3):
        engine.step()
    assert engine.cancel((0, SPEC.slots)) is None  # still in the queue
    partial = engine.cancel((0, 0))
    assert (partial.stop, partial.length) == ("cancelled", 3)
    assert engine.in_flight == SPEC.slots - 1
    assert (0, 0) not in drain(engine)
    with pytest.raises(KeyError):
        engine.cancel((0, 0))


def test_scoring_loses_nothing_under_way(engine):
    whole = drawn(engine, [request(sample=n, max_length=6) for n in range(4)])
    for sample in range(4):
        engine.submit(request(sample=sample, max_length=6))
    for _ in range(8):  # more steps than they need: they end while something is scored
        engine.score(whole[0, 0])
    assert engine.in_flight == 4
    assert {key: ids(r) for key, r in drain(engine).items()} == {key: ids(r) for key, r in whole.items()}


def test_resumed_goes_on_from_its_tokens(shared, engine):
    for sample in range(SPEC.slots + 2):
        engine.submit(request(sample=sample, max_length=12, temperature=1.5))
    for _ in range(3):
        engine.step()
    state, begun = engine.state_dict(), {live.request.key: list(live.drawn) for live in engine.live.values()}
    drain(engine)
    for _ in range(2):
        engine.load_state_dict(state)
        resumed = drain(engine)
        assert len(resumed) == SPEC.slots + 2
        assert all(ids(resumed[key])[:3] == tokens for key, tokens in begun.items())
        assert all(rollout.length <= 12 for rollout in resumed.values())


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


@pytest.mark.parametrize("broken", ["lost", "one layer", "output layer"])
def test_a_broken_delivery_is_caught(engine, policy, other, broken, monkeypatch):
    """``output layer`` is what happens of itself: vLLM's reload leaves the packed copy of a tied output layer stale."""
    canary = list(drawn(engine, [request(n) for n in range(4)]).values())
    proof = DeliveryProof(policy, canary)
    proof(engine, 0)
    proof = DeliveryProof(other, canary)
    state = dict(other.state_dict())
    if broken == "lost":
        state = policy.state_dict()
    elif broken == "one layer":
        name = "model.model.layers.3.self_attn.o_proj.weight"
        state[name] = policy.state_dict()[name]
    else:
        monkeypatch.setattr(VLLMEngine, "_repack_head", lambda self: None)
    engine.load(1, state)
    with pytest.raises(NotDelivered):
        proof(engine, 1)


def test_behind_the_endpoint(engine, native, policy):
    """Token in, token out, from another thread."""
    native.load(0, policy.state_dict())
    prompt_ids = policy.tokenizer.encode(LONG)
    with CompletionServer(engine, policy, Sampling(max_length=8)) as server:
        body = json.dumps({"prompt": prompt_ids, "n": 3, "temperature": 1.5}).encode()
        asked = urllib.request.Request(server.url + "/s/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as reply:
            choices = json.loads(reply.read())["choices"]
        rollouts = server.take("s").rows
    assert [ids(rollout) for rollout in rollouts] == [choice["token_ids"] for choice in choices]
    for rollout in rollouts:
        torch.testing.assert_close(rollout.behavior_S, native.score(rollout), atol=1e-3, rtol=0)


def test_refused_with_the_way_out(engine, policy, monkeypatch):
    with pytest.raises(ValueError, match="min_p before top_p"):
        engine.submit(request(top_p=0.9, min_p=0.1))
    with pytest.raises(ValueError, match="lower sampling"):
        engine.submit(request(max_length=10_000))
    state = dict(policy.state_dict())
    state["model.model.norm.weight"] = torch.zeros(3)
    with pytest.raises(ValueError, match="do not fit"):
        engine.load(1, state)
    with pytest.raises(ValueError, match="not adapters"):
        SPEC.start(
            TokenPolicy(torch.nn.ModuleDict({"q": torch.nn.ModuleDict({"lora_A": torch.nn.Linear(2, 2)})}), None)
        )
    with monkeypatch.context() as patched:
        patched.setattr(torch.distributed, "is_initialized", lambda: True)
        patched.setattr(torch.distributed, "get_world_size", lambda: 2)
        with pytest.raises(ValueError, match="for itself"):
            SPEC.start(policy)
    with pytest.raises(ValueError, match="slots"):
        VLLM(slots=0)
    assert engine.version == 0


def test_it_learns():
    """GRPO with vLLM as the sampler, one version stale at most: what pays comes out more often, and each sync is proved."""
    trainer = Trainer(small_run(engine=SPEC, max_staleness=1, ahead="full", prompts_per_step=4, num_generations=8))
    scores, gaps, ages = [], [], []
    try:
        for _ in range(12):
            metrics, groups, _ = trainer.advance()
            scores.append(sum(float(group.score_G.mean()) for group in groups) / len(groups))
            gaps.append(metrics["sync/gap"])
            ages.append(metrics["staleness/max"])
            assert metrics["mismatch/prob_diff"] < 1e-3 or metrics["staleness/max"] > 0
    finally:
        trainer.close()
    assert max(gaps) < 1e-3
    assert max(ages) == 1
    assert sum(scores[-3:]) > sum(scores[:3]) + 0.2, scores
