"""Roles with weights of their own: whose rows move whose weights, and what of a run holds for every model."""

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import rows, small_run
from test_resume import weights, written

from gimbal import api, config
from gimbal.cli import main
from gimbal.dataflow.packing import pack
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.separate import SeparateWeights, by_role, owners
from gimbal.learning.weight_sync.memory import Memory
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.policies.base import Evaluation
from gimbal.policies.token import CausalLM
from gimbal.records import Episode, TrainBatch
from gimbal.runtime import checkpoint, compose, directories
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.base import AbstractWorkflow, Draw
from gimbal.workflows.plan_and_execute import PlanAndExecute

OWN = {"executor": SeparateWeights()}


@dataclass(frozen=True, kw_only=True)
class Alone(AbstractWorkflow):
    """One role acts; another is there and never does."""

    role: str = "solver"

    @property
    def players(self):
        return frozenset({"solver", "checker"})

    def __call__(self, attempt):
        row = yield Draw(task=attempt.task, sampling=attempt.sampling, role=self.role)
        return Episode.of(row)


def two(**changes: object) -> Run:
    return small_run(**{"workflow": PlanAndExecute(), "separate": OWN, **changes})


def bits(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])


def trained(run: Run, steps: int = 3) -> Trainer:
    trainer = Trainer(run)
    for _ in range(steps):
        trainer.advance()
    return trainer


# Rows and models.


def test_each_row_is_evaluated_by_the_model_of_its_role():
    batch = TrainBatch(
        mask_NS=torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, False]]),
        role_N=torch.tensor([0, 1, 2, 1]),
        roles=("a", "b", "c"),
        behavior_NS=torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0], [5.0, 6.0, 0.0], [7.0, 8.0, 0.0]]),
    )
    asked = {}

    def evaluate(name: str, own: TrainBatch) -> Evaluation:
        asked[name] = own.shape
        sign = -1.0 if name else 1.0
        return Evaluation(logprob_NS=sign * own.behavior_NS, columns={"twice": 2 * own.behavior_NS})

    found = by_role(batch, {"b": "own"}, evaluate)
    assert found.logprob_NS.tolist() == [[1, 2, 3], [-4, 0, 0], [5, 6, 0], [-7, -8, 0]]
    assert torch.equal(found.columns["twice"], 2 * batch.behavior_NS)
    assert asked == {"": (2, 3), "own": (2, 2)}  # its own rows, no wider than they are
    asked.clear()
    assert torch.equal(by_role(batch, {}, evaluate).logprob_NS, batch.behavior_NS)
    assert asked == {"": (4, 3)}  # nobody has any: the batch as it is


def test_the_map_may_give_one_model_to_several_roles():
    assert owners({"a": SeparateWeights(), "m": SeparateWeights(roles=("b", "c"))}) == {"a": "a", "b": "m", "c": "m"}


# Limiting cases.


def test_one_role_is_the_run_without_roles_bit_for_bit(single_thread):
    plain, role, beside = (
        trained(small_run(**changes))
        for changes in (
            {},
            {"workflow": Alone()},
            {"workflow": Alone(), "separate": {"checker": SeparateWeights()}},
        )
    )
    assert torch.equal(bits(plain.learner.policy), bits(role.learner.policy))
    assert torch.equal(bits(plain.learner.policy), bits(beside.learner.policy))
    assert torch.equal(bits(beside.learner.models["checker"]), bits(Trainer(small_run()).learner.policy))


def test_a_role_alone_learns_in_its_own_model_what_the_policy_would_have(single_thread):
    plain = trained(small_run())
    own = trained(small_run(workflow=Alone(role="checker"), separate={"checker": SeparateWeights()}))
    assert torch.equal(bits(plain.learner.policy), bits(own.learner.models["checker"]))
    assert torch.equal(bits(own.learner.policy), bits(Trainer(small_run()).learner.policy))


def gradients(learner: Learner, batch: TrainBatch) -> dict[str, torch.Tensor]:
    learner.forward_backward(learner.prepare(batch))
    found = {
        name: torch.cat([weight.grad.flatten() for weight in learner.models[name].parameters()])
        for name in learner.models.optimizers
    }
    learner._forget()
    return found


def test_with_equal_weights_the_gradients_of_the_roles_add_up_to_that_of_shared_weights(single_thread):
    shared, apart = Trainer(two(separate={})), Trainer(two())
    groups = [trainer.pipeline.next_batch(0)[0] for trainer in (shared, apart) if trainer.begin() is None]
    one, other = (trainer.store.take(pack(found)) for trainer, found in zip((shared, apart), groups, strict=True))
    assert torch.equal(one.behavior_NS, other.behavior_NS)  # equal weights draw the same
    whole = gradients(shared.learner, one)["policy"]
    parts = gradients(apart.learner, one)
    assert parts["policy"].norm() > 0.01 < parts["executor"].norm()
    assert torch.allclose(parts["policy"] + parts["executor"], whole, atol=1e-6)
    assert not torch.allclose(parts["policy"], whole, atol=1e-3)


def test_each_role_is_moved_by_its_own_rows_alone(single_thread):
    trainer = Trainer(two())
    trainer.begin()
    batch = trainer.learner.prepare(pack(trainer.pipeline.next_batch(0)[0]))
    place = batch.roles.index("executor")
    silent = replace(batch, advantage_NS=batch.advantage_NS * (batch.role_N != place)[:, None])
    before = bits(trainer.learner.models["executor"]), bits(trainer.learner.policy)
    metrics = trainer.learner.step(silent)
    assert metrics["grad_norm/executor"] == 0 < metrics["grad_norm"]
    assert torch.equal(before[0], bits(trainer.learner.models["executor"]))
    assert not torch.equal(before[1], bits(trainer.learner.policy))


@pytest.mark.slow
def test_at_a_learning_rate_of_zero_a_role_stays_as_it_began(single_thread):
    start = bits(Trainer(two()).learner.policy)
    still = trained(two(separate={"executor": SeparateWeights(learning_rate=0.0)}))
    moved = trained(two())
    assert torch.equal(bits(still.learner.models["executor"]), start)
    assert not torch.equal(bits(still.learner.policy), start)
    assert not torch.equal(bits(moved.learner.models["executor"]), start)
    metrics = still.advance()[0]
    assert (metrics["lr"], metrics["lr/executor"]) == (1e-3, 0.0)


def test_a_role_may_begin_from_a_model_of_its_own(single_thread, tmp_path):
    trained(small_run(policy=CausalLM()), 1).learner.save(tmp_path)
    run = two(policy=CausalLM(), separate={"executor": SeparateWeights(model=str(tmp_path))})
    trainer = Trainer(run)
    assert not torch.equal(bits(trainer.learner.models["executor"]), bits(trainer.learner.policy))
    with pytest.raises(ValueError, match=r"separate.executor.model is .*other tensors than the policy"):
        Trainer(replace(run, policy=small_run().policy))
    with pytest.raises(ValueError, match="must be from 0, below 1000"):
        SeparateWeights(learning_rate=-1.0)


# A run holds for every model.


@pytest.mark.slow
@pytest.mark.parametrize("age", [0, 2])
def test_resumed_from_the_middle_it_is_the_uninterrupted_run(single_thread, tmp_path, age):
    run = two(max_staleness=age, steps=6, record_every=2, held_out=HeldOut(tasks=rows(3), samples=1))
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))
    run_local(run, tmp_path / "cut", resume=True)
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    own = [tmp_path / name / "model" / "executor" / "model.safetensors" for name in ("whole", "cut")]
    assert (
        own[0].read_bytes() == own[1].read_bytes() != (tmp_path / "whole" / "model" / "model.safetensors").read_bytes()
    )
    steps = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert max(step["staleness/max"] for step in steps) == age
    assert all(step["sync/receipts"] == step["sync/receipts/executor"] == 1 for step in steps)
    losses = [step["role/planner/loss"] + step["role/executor/loss"] - step["loss"] for step in steps]
    assert max(map(abs, losses)) < 1e-6
    assert {"role/planner/reward", "role/executor/length", "grad_norm/executor"} <= steps[0].keys()


@pytest.mark.slow
def test_it_is_resumed_where_the_model_that_a_role_began_with_is_gone(single_thread, tmp_path):
    initial = tmp_path / "initial"
    trained(small_run(policy=CausalLM()), 1).learner.save(initial)
    run = two(policy=CausalLM(model=str(initial)), separate={"executor": SeparateWeights(model=str(initial))})
    trainer = trained(run, 1)
    saved = trainer.save(tmp_path / "run", {})
    shutil.rmtree(initial)
    again = Trainer(run, resume=saved)
    again.begin()
    assert torch.equal(bits(again.learner.models["executor"]), bits(trainer.learner.models["executor"]))
    again.advance()


def test_the_work_of_every_engine_is_counted(single_thread):
    trainer = trained(two(), 1)
    own = trainer.engine.separate["executor"]
    assert trainer._computed == trainer.engine.computed + own.computed > trainer.engine.computed > 0
    own.metrics = lambda: {"perf/mine": 3.0}
    assert trainer.advance()[0]["perf/mine/executor"] == 3.0


def test_a_version_that_does_not_reach_one_role_stops_the_run(single_thread, monkeypatch):
    trainer = trained(two(), 1)
    sync = trainer.deliveries["executor"].sync
    assert isinstance(sync, Memory)
    monkeypatch.setattr(sync, "deliver", lambda engine: None)
    with pytest.raises(NotDelivered):
        trainer.advance()


def test_the_weights_of_another_role_are_not_taken_for_its_own(single_thread, monkeypatch):
    trainer = trained(two(), 1)
    one = trainer.deliveries["executor"]
    monkeypatch.setattr(one.sync, "deliver", lambda engine: engine.load(2, trainer.learner.policy.state_dict()))
    with pytest.raises(NotDelivered):
        trainer.advance()


@pytest.mark.slow
def test_each_role_is_evaluated_and_exported_with_its_own_weights(single_thread, tmp_path, capsys):
    run = two(policy=CausalLM(), steps=2, held_out=HeldOut(tasks=rows(4), samples=2))
    directory = directories.create(run, "mine", "run", tmp_path)
    summary = run_local(run, directory)
    again = api.to_evaluate(str(directory), "", tmp_path)
    assert again.separate["executor"].model.endswith("/model/executor")
    assert api.evaluate(again).score == pytest.approx(summary.after["eval/score"])
    assert main(["export", str(directory), str(tmp_path / "one"), "--role", "executor"]) == 0
    assert "the model of executor of" in capsys.readouterr().out
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        directory / "model" / "executor" / "model.safetensors"
    ).read_bytes()
    assert main(["export", str(directory), str(tmp_path / "two"), "--role", "critic"]) == 2
    assert "models of its own for executor" in capsys.readouterr().err


def test_an_evaluation_without_the_weights_of_a_role_is_refused(single_thread):
    run = two(held_out=HeldOut(tasks=rows(2), samples=1))
    policy = run.policy.load()
    with pytest.raises(ValueError, match="executor has weights of its own in this run"):
        evaluate_held_out(run, policy, weights=Trainer(two(separate={})).learner)
    with pytest.raises(ValueError, match="executor has weights of its own in this run"):
        evaluate_held_out(run, policy)  # else beside another role as it began


@pytest.mark.parametrize("model", ["/nowhere/at/all", "./nowhere"])
def test_a_missing_model_is_refused_before_the_run_by_the_name_of_its_entry(model):
    run = two(policy=CausalLM(), separate={"executor": SeparateWeights(model=model)})
    with pytest.raises(ValueError, match=r"^separate.executor.model: there is no model directory") as refused:
        compose.accepted(run)
    assert "give separate.executor.model=DIRECTORY" in str(refused.value)
    with pytest.raises(ValueError, match=r"^separate.executor.model: there is no model directory"):
        Trainer(run)


def test_a_name_of_the_learners_own_parameters_is_free(single_thread):
    name = "temperature"
    trainer = trained(two(separate={name: SeparateWeights(roles=("executor",))}), 1)
    assert list(trainer.learner.separate) == [name]


def test_it_can_be_typed(single_thread):
    run = config.override(two(separate={}), {"separate.executor": "SeparateWeights(learning_rate=3e-4)"})
    assert run.separate == {"executor": SeparateWeights(learning_rate=3e-4)}
    assert config.override(run, {"optimization": Optimization()}).owners == {"executor": "executor"}


def test_several_learner_processes_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="a learner in several processes: start it without torchrun"):
        compose.check(two())
