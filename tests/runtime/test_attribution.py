"""The causes of a log-ratio add up, and each injected one lands in its own slot."""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from small import rows, small_run

from gimbal.engines.native import Native
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.weight_sync.memory import Memory
from gimbal.policies.token import CausalLM, Sampling
from gimbal.report.gap import CAUSES
from gimbal.runtime.attribution import Sides, attribute, drawn_by, explain
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import Trainer


def moved(policy, scale, seed):
    """The policy with other weights, as after some steps."""
    other = CausalLM().load()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), policy.parameters(), strict=True):
            mine.copy_(theirs + scale * theirs.abs().mean() * torch.randn(theirs.shape, generator=generator))
    return other


@pytest.fixture(scope="module")
def policies():
    start = CausalLM().load()
    drew = moved(start, 0.3, 1)
    return start, drew, moved(drew, 0.2, 2), moved(drew, 0.4, 3)


def split(policies, faults=None, engine=None, before=False, after=False):
    """What came of rollouts that a sampler with these faults drew, to which the start and then the version were delivered."""
    start, drew, later, latest = policies
    faults, engine = faults or Faults(), engine or Native(slots=8, precision="float32")
    sampler, fresh = faults.around_engine(engine.start(start), 0), faults.rounding(engine.start(start))
    sync = faults.around_sync(Memory(), 0)
    for version, held in enumerate((start, drew)):
        sync.publish(version, held.state_dict())
        sync.deliver(sampler)
    fresh.load(1, drew.state_dict())
    sides = Sides(
        engine=sampler, fresh=fresh, drew=drew, before=later if before else drew, after=latest if after else None
    )
    rollouts = drawn_by(sampler, rows(8), Sampling(max_length=16), 0, 5)
    found = attribute(rollouts, sides)
    last = latest if after else (later if before else drew)
    expected = torch.cat(
        [last.evaluate(r.decisions).logprob_NS[0].detach().double() - r.behavior_S.double() for r in rollouts]
    )
    assert torch.allclose(found.total_D, expected, atol=1e-5)
    assert torch.allclose(torch.stack([found.part_D[cause] for cause in CAUSES]).sum(0), found.total_D, atol=1e-5)
    assert len(found.pieces) == len(found.rollout) == len(found.total_D)
    return found


SLOTS = {
    "numerics": [Faults(logprob_noise=0.3), Faults(weight_precision="int4")],
    "sampling": [Faults(sampler_temperature=1.4), Faults(sampler_top_k=2), Faults(sampler_top_p=0.6)],
    "delivery": [Faults(lost_syncs=1.0), Faults(stale_weights=3), Faults(half_swapped=0.5)],
    "token drift": [Faults(token_drift=0.2)],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "faults"),
    [(cause, faults) for cause, each in SLOTS.items() for faults in each],
    ids=lambda x: x if isinstance(x, str) else next(iter(x.active)),
)
def test_an_injected_cause_lands_in_its_own_slot(policies, cause, faults):
    found = split(policies, faults)
    assert found.worst == cause
    assert found.size[cause] > 0.05
    for other in set(CAUSES) - {cause}:
        assert found.size[other] < 0.02, (other, found.size)


@pytest.mark.slow
def test_what_changed_the_learner_is_staleness_and_update(policies):
    stale = split(policies, before=True)
    assert stale.worst == "staleness" and sum(stale.size.values()) - stale.size["staleness"] < 1e-3
    both = split(policies, before=True, after=True)
    assert both.size["update"] > 0.05 and both.size["staleness"] == pytest.approx(stale.size["staleness"])


def test_a_coarse_sampler_is_numerics(policies):
    found = split(policies, engine=Native(slots=8, precision="bfloat16"))
    assert found.worst == "numerics" and found.size["delivery"] == 0 and found.size["sampling"] == 0


@pytest.mark.slow
def test_everything_at_once_still_adds_up(policies):
    faults = Faults(
        logprob_noise=0.01, sampler_temperature=1.4, token_drift=0.1, half_swapped=0.5, weight_precision="int8"
    )
    found = split(policies, faults, before=True, after=True)
    assert min(found.size.values()) > 0


@pytest.mark.slow
def test_the_sampling_that_was_really_used_is_named(policies):
    assert split(policies, Faults(sampler_temperature=0.63)).sampling.temperature == pytest.approx(0.63, abs=0.02)
    assert split(policies, Faults(sampler_top_k=2)).sampling == replace(Sampling(max_length=16), top_k=2)
    assert split(policies).sampling is None


@pytest.mark.slow
def test_tokens_that_spell_another_text_are_counted(policies):
    assert split(policies, Faults(token_drift=0.5)).drifted == 5
    assert split(policies).drifted == 0


@pytest.mark.slow
def test_a_run_without_a_checkpoint_of_its_own_is_explained_end_to_end(tmp_path):
    """The way of `gimbal doctor CHECKPOINT`: the sampler's own sync, another engine beside it."""
    CausalLM().load().save(tmp_path / "model")
    run = small_run(policy=CausalLM(fresh=True), sampling=Sampling(max_length=8), faults=Faults(lost_syncs=1.0))
    engine, against = Native(slots=8, precision="int8"), Native(slots=8, precision="float32")
    lost = explain(run, tmp_path / "model", engine, against, count=3)
    assert lost.worst == "delivery" and lost.against["near"] > 10 * lost.against["far"]
    sound = explain(replace(run, policy=CausalLM(), faults=None), tmp_path / "model", engine, None, count=3)
    assert sound.worst == "numerics" and sound.size["delivery"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("anchor", [SamplingVersion(window=1), Recompute()], ids=lambda x: type(x).__name__)
def test_what_each_step_logs_adds_up_to_the_log_ratio_of_what_it_trained_on(anchor):
    trainer = Trainer(
        small_run(anchor=anchor, max_staleness=1, ahead="full", engine=Native(slots=12, precision="bfloat16"))
    )
    for step in range(3):
        before = copy.deepcopy(trainer.learner.policy)
        metrics, _, batch = trainer.advance()
        with torch.no_grad():
            log_NS = before.evaluate(batch.decisions).logprob_NS - batch.behavior_NS
        parts = {name: value for name, value in metrics.items() if name.startswith("cause/")}
        assert sum(parts.values()) == pytest.approx(float(log_NS[batch.mask_NS].mean()), abs=1e-5)
        if step and isinstance(anchor, SamplingVersion):  # all of it is one version old
            assert parts.keys() == {"cause/discrepancy", "cause/update"} and parts["cause/update"] != 0
        elif step:
            assert parts["cause/discrepancy"] == parts["cause/update"] == 0 and parts["cause/unsplit"] != 0
    trainer.close()
