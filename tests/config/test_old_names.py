"""Names that scripts and parts of users may still have work as before."""

from dataclasses import dataclass

import torch

from gimbal.engines.base import AbstractEngineAround
from gimbal.environments import demonstrations
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.objectives.base import AbstractObjective
from gimbal.records import TrainBatch
from gimbal.runtime import evaluate


def test_imported_functions():
    assert demonstrations.exam is demonstrations.held_out_tasks
    assert demonstrations.practice is demonstrations.training_tasks
    assert evaluate.examine is evaluate.evaluate


def test_methods_that_a_users_class_defines():
    class Anchor(AbstractAnchor):
        def __call__(self, batch, evaluate): ...

        def leaving(self, held, evaluate):
            return "called"

    class Engine(AbstractEngineAround):
        def underway(self):
            return ["shown"]

    assert Anchor().before_update(list, None) == "called"
    assert Engine.partial_rollouts(None) == ["shown"]  # pyrefly: ignore[bad-argument-type]; it reads nothing of itself


def test_columns_that_a_users_loss_reads():
    @dataclass(frozen=True, kw_only=True)
    class Loss(AbstractObjective):
        needs = frozenset({"values_NS", "value_NS"})

        def __call__(self, logprob_NS, batch): ...

    assert Loss.needs == {"new_value_NS", "value_NS"}
    value_NS = torch.zeros(1, 1, requires_grad=True)
    batch = TrainBatch(mask_NS=torch.ones(1, 1, dtype=torch.bool), new_value_NS=value_NS)
    assert batch.column("values_NS", Loss()).requires_grad
