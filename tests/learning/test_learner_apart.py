"""The runtime asks a learner for nothing but what ``AbstractLearner`` promises: its policy may live elsewhere."""

import copy
import inspect
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import rows, small_run

from gimbal.learning import joining
from gimbal.learning.base import AbstractLearner
from gimbal.learning.optimization import Optimization
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut


class Apart(AbstractLearner):
    """A learner whose policy nobody else holds: what goes in and out are copies, as between processes. It has no ``policy``."""

    def __init__(self, start, policy, ranks):
        self._inner = start(copy.deepcopy(policy), ranks)

    @property
    def version(self):
        return self._inner.version

    @property
    def update(self):
        return self._inner.update

    @property
    def compute(self):
        return self._inner.compute


def _passed_on(name):
    def call(self, *given):
        sent = [copy.deepcopy(x) if not callable(x) else x for x in given]
        return copy.deepcopy(getattr(self._inner, name)(*sent))

    return call


for _name in AbstractLearner.__abstractmethods__ - {"version", "update", "compute"}:
    setattr(Apart, _name, _passed_on(_name))
Apart.__abstractmethods__ = frozenset()


@pytest.mark.slow
def test_a_policy_that_lives_elsewhere_trains_to_the_same_bits(tmp_path, monkeypatch, single_thread):
    run = small_run(optimization=Optimization(learning_rate=3e-3))
    run = replace(run, held_out=HeldOut(tasks=rows(2), samples=1))
    ends = []
    for lead in (joining.lead, lambda ranks, policy, start: Apart(start, policy, ranks)):
        monkeypatch.setattr(joining, "lead", lead)
        trainer = Trainer(run)
        seen = [deterministic(trainer.advance()[0]) for _ in range(2)]
        saved = trainer.save(tmp_path / str(len(ends)), {})
        trainer.close()
        resumed = Trainer(run, saved)
        seen.append(deterministic(resumed.advance()[0]))
        ends.append((seen, resumed.evaluate(), {name: x.clone() for name, x in resumed.learner.weights().items()}))
        resumed.close()
    (seen, exam, weights), (seen_apart, exam_apart, weights_apart) = ends
    assert isinstance(resumed.learner, Apart) and not hasattr(resumed.learner, "policy")
    stale = resumed.policy.weights()
    assert any(not torch.equal(weights_apart[name], x) for name, x in stale.items()), (
        "the runtime's own was not trained"
    )
    assert seen_apart == seen and exam_apart == exam
    assert weights_apart.keys() == weights.keys() and all(torch.equal(weights_apart[n], x) for n, x in weights.items())


def test_no_file_of_the_runtime_reaches_into_a_learner():
    from gimbal.runtime import checkpoint, evaluate, local

    for module in (local, evaluate, checkpoint):
        assert "learner.policy" not in inspect.getsource(module)
