"""Old versions in a process of their own, and evaluated before they are given up: both against SamplingVersion, to the numbers."""

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.engines.native import Native
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.old_policy import OldPolicyLost
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime import checkpoint
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import Trainer

# Small batches of texts that end early or late: at every update others are half drawn, so versions change within them.
# In double precision, for in single the same log-probability differs by 1e-5 with the rows beside it.
STALE = {
    "policy": CausalLM(dtype="float64"),
    "engine": Native(slots=6, precision="float32"),
    "sampling": Sampling(max_length=40),
    "max_staleness": 3,
    "prompts_per_step": 1,
    "num_generations": 2,
    "optimization": Optimization(learning_rate=3e-3),
}
EXACT = SamplingVersion(window=3)


def stepped(run, steps=6, resume=None):
    """Of each step: the batch, its anchor, the metrics; and the trainer, closed."""
    trainer = Trainer(run, resume)
    try:
        found = []
        for _ in range(steps):
            metrics, _, batch = trainer.advance()
            found.append((batch, metrics))
        return found, trainer
    finally:
        trainer.close()


@pytest.fixture(scope="module")
def exact():
    torch.set_num_threads(1)
    return stepped(small_run(anchor=EXACT, **STALE))[0]


def agree(found, exact):
    for (batch, _), (other, _) in zip(found, exact, strict=True):
        assert torch.equal(batch.version_NS, other.version_NS) and torch.equal(batch.mask_NS, other.mask_NS)
        torch.testing.assert_close(batch.proximal_NS, other.proximal_NS, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_the_data_are_stale_and_versions_change_within_rollouts(exact):
    assert max(metrics["staleness/max"] for _, metrics in exact) >= 2
    spread = [batch.version_NS.where(batch.mask_NS, -1).amax(1) for batch, _ in exact]
    least = [batch.version_NS.where(batch.mask_NS, 99).amin(1) for batch, _ in exact]
    assert any(bool((low < high).any()) for low, high in zip(least, spread, strict=True))


@pytest.mark.slow
def test_interruption_says_what_the_kept_versions_say(exact):
    found, _ = stepped(small_run(anchor=Interruption(), **STALE))
    agree(found, exact)
    weights = exact[-1][1]["anchor/bytes"]
    assert 0 < found[-1][1]["anchor/bytes"] < weights / 100, "numbers are kept, no weights"


@pytest.mark.slow
def test_a_process_of_its_own_says_what_the_learner_would(exact):
    found, trainer = stepped(small_run(anchor=replace(EXACT, apart=True), **STALE))
    agree(found, exact)
    assert all(metrics["anchor/bytes"] > 4e6 for _, metrics in found)
    assert not trainer.learner.models.parts["anchor"].process._processes, "it ends with the run"


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run_in_a_sentence_and_the_run_goes_on_from_its_checkpoint(exact, tmp_path):
    run = small_run(anchor=replace(EXACT, apart=True), **STALE)
    trainer = Trainer(run)
    try:
        for _ in range(3):
            trainer.advance()
        trainer.save(tmp_path, {})
        (number,) = trainer.learner.models.parts["anchor"].process._processes
        os.kill(number, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(OldPolicyLost, match=r"has died.*--resume.*anchor\.apart=false"):
            for _ in range(3):
                trainer.advance()
        assert time.monotonic() - start < 20, "it does not hang"
    finally:
        trainer.close()
    found, _ = stepped(run, steps=3, resume=checkpoint.newest(tmp_path))
    agree(found, exact[3:])


@pytest.mark.slow
def test_interruption_resumes_with_what_it_knew(exact, tmp_path):
    run = small_run(anchor=Interruption(), **STALE)
    _, trainer = stepped(run, steps=3)
    trainer.save(tmp_path, {})
    agree(stepped(run, steps=3, resume=checkpoint.newest(tmp_path))[0], exact[3:])


def test_what_was_not_seen_while_its_weights_were_there_is_refused():
    trainer = Trainer(small_run(anchor=Interruption(), **STALE))
    trainer.engine.partial_rollouts = list  # an engine that hides what it is drawing
    with pytest.raises(ValueError, match="were not evaluated while their weights existed"):
        for _ in range(6):
            trainer.advance()


def test_decisions_that_were_changed_since_are_refused():
    run = small_run(anchor=Interruption(), faults=Faults(logprob_noise=0.1), **STALE)
    with pytest.raises(ValueError, match="were not evaluated while their weights existed"):
        stepped(run)


def test_several_ranks_evaluate_old_versions_themselves(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for anchor in (Interruption(), SamplingVersion(apart=True)):
        with pytest.raises(ValueError, match="apart=false"):
            anchor.start(CausalLM().load())
