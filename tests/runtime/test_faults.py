"""Faults on purpose: each breaks what it says, and only where it is asked to; the evaluation and a run without them stay clean."""

import sys
from dataclasses import replace
from pathlib import Path

import made
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from small import rows, small_run

from gimbal import api, config, recipes
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request
from gimbal.engines.native import Native
from gimbal.learning.weight_sync.base import AbstractWeightSync
from gimbal.learning.weight_sync.memory import Memory
from gimbal.learning.weight_sync.proof import NotDelivered
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.report.files import STOPPED, JsonLines, deterministic
from gimbal.runtime import checkpoint, compose
from gimbal.runtime.attribution import drawn_by
from gimbal.runtime.base import AtOnce
from gimbal.runtime.faults import Faults, FaultyEngine, FaultyScorer
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.run import Run

SAMPLING = Sampling(max_length=12)


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def rollouts(policy, faults, count=6):
    engine = faults.around_engine(Native(slots=4, precision="float32").start(policy), 0)
    engine.load(0, policy.state_dict())
    return engine, drawn_by(engine, rows(8), SAMPLING, 0, count)


def trainer_S(policy, rollout):
    with torch.no_grad():
        return policy.evaluate(rollout.decisions).logprob_NS[0]


def gap(policy, drawn):
    return torch.cat([r.behavior_S - trainer_S(policy, r) for r in drawn])


def test_without_a_fault_every_part_is_the_part_itself(policy):
    engine, sync, scorer = Native().start(policy), Memory(), AtOnce(())
    faults = Faults(unproved=True, seed=3)
    assert faults.around_engine(engine, 0) is engine and faults.around_sync(sync, 0) is sync
    assert faults.around_scorer(scorer, 0) is scorer and faults.active == {}


@pytest.mark.parametrize("knob", [{"sampler_top_k": 2}, {"sampler_top_p": 0.6}, {"token_drift": 0.1}], ids=str)
def test_faults_of_texts_are_refused_where_nothing_is_text(knob):
    (name,) = knob
    with pytest.raises(ValueError, match=rf"^faults.{name} is for language models, and Categorical samples no tokens$"):
        compose.check(replace(cartpole(), faults=Faults(**knob)))
    assert compose.check(replace(cartpole(), faults=Faults(sampler_temperature=1.5))) == compose.check(cartpole())


@pytest.mark.slow
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_fault_without_end_is_refused(value):
    with pytest.raises(ValueError, match=r"^faults.logprob_noise is (inf|nan); it must be finite, and 0 is off"):
        Faults(logprob_noise=value)


def test_noise_is_on_the_record_and_of_the_size_asked_for(policy):
    _, drawn = rollouts(policy, Faults(logprob_noise=0.3), count=16)
    _, clean = rollouts(policy, Faults(), count=16)
    assert [r.text for r in drawn] == [r.text for r in clean]  # it changes no decision
    assert gap(policy, clean).abs().max() < 1e-4
    assert gap(policy, drawn).std() == pytest.approx(0.3, rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("knobs", "sampling"),
    [
        ({"sampler_temperature": 1.5}, replace(SAMPLING, temperature=1.5)),
        ({"sampler_top_k": 2}, replace(SAMPLING, top_k=2)),
        ({"sampler_top_p": 0.6}, replace(SAMPLING, top_p=0.6)),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_the_sampler_draws_at_what_the_record_does_not_say(policy, knobs, sampling):
    engine, drawn = rollouts(policy, Faults(**knobs))
    for rollout in drawn:
        assert rollout.sampling == SAMPLING
        assert torch.allclose(engine.score(replace(rollout, sampling=sampling)), rollout.behavior_S, atol=1e-4)
    assert gap(policy, drawn).abs().mean() > 0.02


def test_drifted_tokens_are_not_those_of_the_text(policy):
    _, drawn = rollouts(policy, Faults(token_drift=1.0))
    _, clean = rollouts(policy, Faults())
    for one, other in zip(drawn, clean, strict=True):
        assert one.text == other.text and one.length == other.length
        differ = one.decisions.ids_NL != other.decisions.ids_NL
        first, last = int(one.decisions.prompt_N[0]), int(one.decisions.length_N[0]) - 1
        assert not differ[0, :first].any() and not differ[0, last]
        # A text of one character has no other to drift to.
        assert bool(differ[0, first:last].all()) == (len(other.decisions.ids_NL[0, first:last].unique()) > 1)


def test_int4_weights_are_coarser_than_int8(policy):
    gaps = [gap(policy, rollouts(policy, Faults(weight_precision=p))[1]).abs().mean() for p in ("int8", "int4")]
    assert 1e-4 < gaps[0] < gaps[1] / 4


def test_a_slow_worker_holds_back_and_loses_nothing(policy):
    engine = Faults(slow_workers=0.5, slow_steps=30).around_engine(
        Native(slots=8, precision="float32").start(policy), 0
    )
    engine.load(0, policy.state_dict())
    assert isinstance(engine, FaultyEngine)
    drawn = drawn_by(engine, rows(8), SAMPLING, 0, 8)
    assert len(drawn) == 8 and 30 <= engine.clock <= 45


def test_what_is_held_back_survives_a_checkpoint(policy, tmp_path):
    def started():
        engine = Faults(slow_workers=1.0).around_engine(Native(slots=8, precision="float32").start(policy), 0)
        engine.load(0, policy.state_dict())
        return engine

    whole, first = started(), started()
    texts = [r.text for r in drawn_by(whole, rows(4), SAMPLING, 0, 4)]
    second = started()
    for index in range(4):
        first.submit(Request(group=index, task=rows(4)[index], sample=0, sampling=SAMPLING, seed=0))
    for _ in range(40):
        assert first.step() == []
    second.load_state_dict(first.state_dict())
    arrived = {}
    while second.in_flight:
        arrived |= {item.key[0]: item.rollout.text for item in second.step()}
    assert [arrived[index] for index in range(4)] == texts


class Told(AbstractWeightSync):
    """Notes what it is given."""

    def __init__(self):
        self.published = []

    def publish(self, version, state):
        self.published.append({name: float(x) for name, x in state.items()})

    def deliver(self, engine):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({"lost_syncs": 1.0}, [0, 0, 0, 0]),
        ({"stale_weights": 2}, [0, 0, 0, 1]),
        ({"lost_syncs": 0.0, "half_swapped": 1.0}, [0, 0, 0, 0]),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_weights_that_are_not_those_of_the_version(knobs, expected):
    told = Told()
    sync = Faults(**knobs).around_sync(told, 0)
    for version in range(4):
        sync.publish(version, {"weight": torch.tensor(float(version))})
    assert [state["weight"] for state in told.published] == expected


def test_half_swapped_weights_are_partly_new():
    told = Told()
    sync = Faults(half_swapped=0.5).around_sync(told, 0)
    for version in range(3):
        sync.publish(version, {f"layer{i}": torch.tensor(float(version)) for i in range(40)})
    assert told.published[0] == dict.fromkeys(told.published[0], 0.0)
    assert 8 < sum(told.published[2].values()) / 2 < 32 and set(told.published[2].values()) == {0.0, 2.0}


def trained(faults, steps=2, **changes):
    trainer = Trainer(small_run(faults=faults, steps=steps, max_staleness=1, **changes))
    try:
        return [trainer.advance() for _ in range(steps)]
    finally:
        trainer.close()


def test_dropped_and_doubled_samples_are_seen_by_the_account():
    for knobs, name in (({"dropped_samples": 0.5}, "missing"), ({"doubled_samples": 0.5}, "doubled")):
        metrics, groups, batch = trained(Faults(**knobs), steps=1)[0]
        assert metrics[f"samples/{name}"] > 0
        assert batch.shape[0] == sum(len(group.rollouts) for group in groups) != 8
    metrics = trained(None, steps=1)[0][0]
    assert metrics["samples/missing"] == metrics["samples/doubled"] == 0


def test_a_return_that_an_environment_pays_is_falsified_once():
    """It stays in the row, so the score is what is added to it."""
    scorer = FaultyScorer(Faults(reward_flip=1.0), AtOnce(()), 0)
    scorer.submit(made.group(made.TASK, made.rollout(reward_S=torch.ones(1))))
    flipped = scorer.ready(wait=True).outcome
    assert flipped.episodes[0].earned == float(pack([flipped]).return_N) == 0.0


@pytest.mark.slow
def test_false_rewards():
    clean = trained(None, steps=1)[0][1]
    scores = [r.score for g in clean for r in g.rollouts]
    paid = [r for g in trained(Faults(reward_length=0.1), steps=1)[0][1] for r in g.rollouts]
    assert [r.score for r in paid] == pytest.approx([s + 0.1 * r.length for s, r in zip(scores, paid, strict=True)])
    assert [r.scores["digits"] for r in paid] == pytest.approx(scores)  # the verifier's own verdict is untouched
    turned = [r for g in trained(Faults(reward_flip=1.0), steps=1)[0][1] for r in g.rollouts]
    assert [r.score for r in turned] == [r.scores["digits"] for r in turned] == pytest.approx([1 - s for s in scores])
    alike = trained(Faults(reward_blind=1.0), steps=1)[0][1]
    assert all(len({r.score for r in group.rollouts}) == 1 for group in alike)
    noisy = [r.score for g in trained(Faults(reward_noise=1.0), steps=1)[0][1] for r in g.rollouts]
    assert 0.3 < torch.tensor([a - b for a, b in zip(noisy, scores, strict=True)]).std() < 2


def test_lost_syncs_stop_a_run_unless_it_is_told_not_to(single_thread, tmp_path, capsys):
    with pytest.raises(NotDelivered):
        run_local(small_run(faults=Faults(lost_syncs=1.0)), tmp_path / "stopped")
    assert '"NotDelivered"' in (tmp_path / "stopped" / STOPPED).read_text()
    capsys.readouterr()
    run_local(small_run(faults=Faults(lost_syncs=1.0, unproved=True), steps=2), tmp_path / "on")
    assert all(row["sync/failed"] == 1 for row in JsonLines(tmp_path / "on" / "metrics.jsonl").read())
    assert (
        capsys.readouterr().out.count("FAULTS ARE INJECTED ON PURPOSE (lost_syncs=1.0)") == 2
    )  # at the start and at the end
    assert not (tmp_path / "on" / STOPPED).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        Faults(logprob_noise=0.1, slow_workers=0.5, slow_steps=15, dropped_samples=0.2, reward_noise=0.2),
        Faults(stale_weights=2, half_swapped=0.3, lost_syncs=0.3, unproved=True),
    ],
    ids=["samples", "weights"],
)
def test_a_run_with_faults_is_recorded_and_resumes_to_the_same_bits(single_thread, tmp_path, faults):
    run = small_run(faults=faults, max_staleness=2, steps=4, checkpoint_every=2)
    run_local(run, tmp_path / "whole")
    run_local(replace(run, steps=2), tmp_path / "cut")
    config.save(config.dump(run, "small"), tmp_path / "cut" / config.RECIPE_FILE)
    assert config.load(tmp_path / "cut", Run)[1].faults == faults
    run_local(run, tmp_path / "cut", resume=True)
    assert checkpoint.newest(tmp_path / "cut").name == "step_000004"
    rows_of = [
        [deterministic(row) for row in JsonLines(tmp_path / name / "metrics.jsonl").read()] for name in ("whole", "cut")
    ]
    assert rows_of[0] == rows_of[1]


def test_what_is_no_share_or_is_negative_is_refused():
    with pytest.raises(ValueError, match="share"):
        Faults(lost_syncs=1.5)
    with pytest.raises(ValueError, match="0 \\(off\\)"):
        Faults(logprob_noise=-1.0)


def test_a_run_with_faults_says_so_before_it_starts():
    assert "FAULTS ARE INJECTED ON PURPOSE (token_drift=0.1)" in api.statement(
        small_run(faults=Faults(token_drift=0.1))
    )
    assert "FAULTS" not in api.statement(small_run())


def test_faults_that_have_nothing_to_break_are_refused():
    with pytest.raises(ValueError, match="dense rewards"):
        compose.check(small_run(faults=Faults(reward_noise=0.1), rewards=()))
    cartpole = recipes.load("cartpole", {})
    with pytest.raises(ValueError, match="no tokens"):
        compose.check(replace(cartpole, faults=Faults(token_drift=0.1)))
    compose.check(replace(cartpole, faults=Faults(lost_syncs=0.1, logprob_noise=0.1)))
