"""The closed loop around real steps: what it leaves alone, what it takes back, and that a resumed run does the same."""

import json
import math
import shutil
import sys
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, small_run

from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import AbstractRemembering
from gimbal.controllers import AdaptiveKL, Fallback, Linear, Region, Smoothed, Stability
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.packing import pack
from gimbal.learning.learner import Learner
from gimbal.learning.loop import _apart
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.base import NotFinite
from gimbal.objectives import EntropyBonus, EntropyGatedKL, KLPenalty, Likelihood
from gimbal.objectives.base import AbstractObjective
from gimbal.recipes.core.ppo import ppo
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.records import Terms
from gimbal.report.files import deterministic
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer, run_local


@dataclass(frozen=True, kw_only=True)
class Forgetful(AbstractObjective, AbstractRemembering):
    past: float = 0.0

    def __call__(self, logprob_NS, batch):
        return Terms(0 * logprob_NS)

    def init(self):
        return {"past": self.past}

    def update(self, state, metrics):
        return {"past": metrics["kl/rfe"]}


FAST = Optimization(learning_rate=3e-2, minibatches=2)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


@pytest.fixture(scope="module")
def batch():
    trainer = Trainer(small_run())
    trainer.begin()
    found = pack(trainer.pipeline.next_batch(0)[0])
    trainer.close()
    return found


def stepped(batch, **changes):
    """(the learner after one step, its metrics, the weights before)"""
    learner = Learner(Shallow().load(), small_run(**changes))
    before = weights(learner.policy)
    return learner, learner.step(learner.prepare(batch)), before


def test_a_region_without_bounds_and_a_rate_without_pace_are_the_run_without_a_loop(single_thread, batch):
    idle = Stability(region=Region(times=float("inf")), up=1.0, down=1.0)
    plain, looped = stepped(batch, optimization=FAST), stepped(batch, optimization=FAST, stability=idle)
    assert torch.equal(weights(plain[0].policy), weights(looped[0].policy))
    assert looped[1]["loop/attempted"] == looped[1]["loop/moved"] > 0 and looped[1]["loop/kept"] == 1.0
    assert {name for name in looped[1] if name not in plain[1]} - {"time/loop"} == {
        f"loop/{name}" for name in ("discrepancy", "target", "attempted", "moved", "kept", "factor")
    }


def test_a_step_that_went_too_far_is_scaled_back_along_its_way(batch):
    free, _, before = stepped(batch, optimization=FAST)
    held, metrics, _ = stepped(batch, optimization=FAST, stability=Stability())
    assert metrics["loop/attempted"] > 4 * metrics["loop/target"] >= metrics["loop/moved"] > 0
    torch.testing.assert_close(
        weights(held.policy) - before, metrics["loop/kept"] * (weights(free.policy) - before), atol=1e-6, rtol=0
    )
    assert held.loop.factor == pytest.approx(1 / Stability().down)


@dataclass(frozen=True, kw_only=True)
class Stubborn(Stability):
    def back(self, distance: float, target: float) -> float:
        return 0.9 if distance > 0 else 1.0


def test_a_step_that_no_scale_brings_back_is_undone(batch):
    held, metrics, before = stepped(batch, optimization=FAST, stability=Stubborn())
    assert torch.equal(weights(held.policy), before) and held.version == 1
    assert metrics["loop/kept"] == metrics["loop/moved"] == 0.0


def test_a_step_that_is_not_finite_is_undone_and_the_run_goes_on(batch):
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
    before = weights(learner.policy)
    prepared = learner.prepare(batch)
    poison = torch.full_like(prepared.advantage_NS, float("inf"))
    metrics = learner.step(replace(prepared, advantage_NS=poison))
    assert metrics["loop/not_finite"] == 1.0 and metrics["loop/kept"] == 0.0 and learner.version == 1
    assert torch.equal(weights(learner.policy), before)
    assert learner.step(learner.prepare(batch))["loop/moved"] > 0


@dataclass(frozen=True, kw_only=True)
class Rare(AbstractAdvantage):
    """Infinite where it is asked for."""

    broken: list[bool] = field(default_factory=list)

    def __call__(self, batch):
        return batch.mask_NS * (float("inf") if self.broken.pop(0) else 1.0)


def test_a_part_whose_numbers_are_not_finite_is_named_and_its_step_undone(batch):
    learner = Learner(
        Shallow().load(), small_run(optimization=FAST, stability=Stability(), advantage=Rare(broken=[True, False]))
    )
    metrics = learner.step(learner.prepare(batch))
    assert metrics["not_finite/Rare"] == metrics["loop/not_finite"] == 1.0 and metrics["loop/kept"] == 0.0
    assert "not_finite/Rare" not in learner.step(learner.prepare(batch))
    alone = Learner(Shallow().load(), small_run(optimization=FAST, advantage=Rare(broken=[True])))
    with pytest.raises(NotFinite, match=r"the advantages of step 1 are not finite after Rare: .* not applied"):
        alone.step(alone.prepare(batch))


def test_data_from_further_away_gets_shorter_steps(batch):
    """The distance is KL(policy || what drew the data), of each decision as far as the policy would have drawn it; all rows count."""
    targets = []
    for shift in (0.0, 0.3):
        learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
        prepared = learner.prepare(batch)
        near_NS = prepared.column("proximal_NS", batch) - shift * prepared.mask_NS
        near_NS[0] = prepared.column("proximal_NS", batch)[0]
        metrics = learner.step(prepared.with_columns({"behavior_NS": near_NS}))
        share = 1 - prepared.mask_NS[0].sum() / prepared.mask_NS.sum()  # of the decisions, each with weight 1
        assert metrics["loop/discrepancy"] == pytest.approx(float(share) * (math.exp(-shift) - 1 + shift), abs=1e-6)
        targets.append(metrics["loop/target"])
    assert targets[1] == pytest.approx(
        targets[0] * (1 - math.sqrt(metrics["loop/discrepancy"] / Region().discrepancy)) ** 2, rel=1e-3
    )


def test_data_that_the_policy_has_left_is_far_away():
    """min(1, r) (1 / r - 1 + log r) of log r, bounded by 1 where the policy takes no more what was drawn, and never falling."""
    ratio = torch.tensor([-200.0, -40.0, -20.0, -5.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 5.0], dtype=torch.float64)
    found = _apart(ratio)
    expected = ratio.exp().clamp(max=1) * ((-ratio).exp() - 1 + ratio)
    torch.testing.assert_close(found[2:], expected[2:], atol=1e-8, rtol=1e-6)
    assert found[0] == 1.0 and found[1] > 0.999 and (found[:7].diff() <= 0).all() and (found[6:].diff() > 0).all()


def test_an_objective_without_advantages_has_its_rate_raised(batch):
    slow = replace(FAST, learning_rate=1e-6)
    learner, metrics, _ = stepped(batch, objective=Likelihood(), optimization=slow, stability=Stability())
    assert metrics["signal_frac"] >= 0 and metrics["live_frac"] > 0
    prepared = replace(learner.prepare(batch), advantage_NS=torch.zeros(batch.shape))
    learner.loop.state = dict(learner.loop.rule.init())
    learner.step(prepared)
    assert learner.loop.factor == Stability().up


def test_a_slice_without_decisions_changes_no_rate(batch):
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
    blank = replace(batch, mask_NS=torch.zeros_like(batch.mask_NS))
    surprise, discrepancy, distance = learner.loop._distance(learner.prepare(blank))
    assert math.isnan(surprise) and discrepancy == distance() == 0.0
    learner.step(learner.prepare(batch))
    after = dict(learner.loop.state)
    metrics = learner.step(replace(learner.prepare(batch), advantage_NS=torch.zeros(batch.shape)))
    assert metrics["loop/factor"] == after["factor"] == learner.loop.factor  # no advantage: nor does this


RULES = {
    "regularisers": (KLPenalty(), EntropyBonus(), EntropyGatedKL()),
    "controllers": {"regularisers.0.coef": Smoothed(rule=AdaptiveKL()), "regularisers.1.coef": Linear(steps=10)},
}


def ruled(**changes):
    run = small_run(**{"optimization": FAST, "stability": Stability(fallback=Fallback(most=1)), **RULES, **changes})
    policy = Shallow().load()
    return Learner(policy, run, reference=deepcopy(policy))


def test_what_goes_by_a_loss_waits_through_a_step_that_has_none(batch):
    """Undone, or a return: rules without their signal stay where they are, those that count steps go on, and the run too."""
    learner = ruled()

    def control(step):
        return learner.control(step | {"reward/mean": 0.5, "staleness/max": 0.0})

    prepared = learner.prepare(batch)
    sick = replace(prepared, advantage_NS=torch.full_like(prepared.advantage_NS, float("inf")))
    seen = [control(learner.step(sick))]
    assert seen[0]["control/regularisers.0.coef"] == 0.04 and seen[0]["memory/regularisers.2.smoothed"] == 0.0
    for _ in range(2):
        seen.append(control(learner.step(learner.prepare(batch))))
    learner.loop.score |= {"good": 1.0, "due": 1.0}
    returned = learner.step(learner.prepare(batch))
    assert "loop/returned" in returned and "loss" not in returned
    seen.append(control(returned))
    followed = [(row["control/regularisers.0.coef"], row["memory/regularisers.2.smoothed"]) for row in seen]
    assert followed[0] != followed[1] != followed[2] == followed[3]
    assert [row["control/regularisers.1.coef"] for row in seen] == pytest.approx([0.45, 0.4, 0.35, 0.3])


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"controllers": {"regularisers.0.coef": AdaptiveKL(signal="kl/rfe")}}, "controllers.regularisers.0.coef"),
        ({"regularisers": (KLPenalty(), EntropyBonus(), Forgetful())}, "regularisers.2"),
    ],
)
def test_a_figure_that_nobody_measures_is_told_after_the_first_step_that_is_not_undone(batch, changes, path):
    learner = ruled(**changes)
    prepared = learner.prepare(batch)
    learner.control(learner.step(replace(prepared, advantage_NS=torch.full_like(prepared.advantage_NS, float("inf")))))
    metrics = learner.step(learner.prepare(batch))
    with pytest.raises(ValueError, match=rf"^{path} is \w+, which goes by 'kl/rfe', and step 2 did not measure it"):
        learner.control(metrics)


@pytest.mark.slow
def test_a_resumed_run_takes_back_what_the_whole_one_did(single_thread, tmp_path):
    run = small_run(max_staleness=1, steps=4, optimization=FAST, stability=Stability(region=Region(kl=1e-3)))
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))
    assert checkpoint.newest(tmp_path / "cut").name == "step_000002"
    run_local(run, tmp_path / "cut", resume=True)
    whole, cut = (
        [deterministic(json.loads(line)) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "cut")
    )
    assert whole == cut
    kept = [row["loop/kept"] for row in whole]
    assert min(kept[:2]) < 1 and len({row["loop/factor"] for row in whole[1:]}) > 1  # on both sides of the cut


@pytest.mark.slow
def test_a_run_whose_score_falls_returns_to_the_last_version_that_was_good(batch, monkeypatch):
    stability = Stability(fallback=Fallback(patience=2, most=1))
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=stability))

    def step(score):
        metrics = learner.step(
            learner.prepare(replace(batch, version_NS=torch.full_like(batch.version_NS, learner.version)))
        )
        learner.control({"reward/mean": score, "staleness/max": 0.0})
        return metrics

    monkeypatch.setattr("gimbal.controllers.fallback.FIRST", 3)  # scores before it judges
    for score in (0.5, 0.5, 0.5):
        step(score)
    good = {name: w.clone() for name, w in learner.loop.good.items()}
    assert learner.loop.score["good"] == 2 and learner.loop.score["candidate"] == 3
    for score in (0.0, 0.0):
        assert "loop/returned" not in step(score)
    metrics = step(0.0)
    assert metrics["loop/returned"] == 2.0 and learner.version == 6
    assert all(torch.equal(w, learner.policy.state_dict()[name]) for name, w in good.items())
    assert step(0.5)["loop/target"] < 0.3 * Stability().region.kl  # with shorter steps for a while
    assert not any("loop/returned" in step(0.0) for _ in range(6))  # no more often than it may


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "dense"), [(cartpole, False), (pendulum, True)])
def test_the_same_loop_holds_policies_of_actions(recipe, dense):
    run = recipe()
    fast = replace(run.optimization, learning_rate=0.3)
    trainer = Trainer(replace(run, prompts_per_step=2, num_generations=1, optimization=fast, stability=Stability()))
    steps = [trainer.advance()[0] for _ in range(2)]
    assert any(step["loop/attempted"] > 4 * step["loop/target"] for step in steps)
    assert all(4 * step["loop/target"] >= step["loop/moved"] for step in steps)
    # log-densities say nothing of certainty
    assert trainer.learner.loop.state["surprise"] == Region().calm or not dense
    trainer.close()


def poisoned(batch):
    return replace(batch, advantage_NS=torch.full_like(batch.advantage_NS, float("inf")))


def test_a_run_of_undone_steps_ends_with_the_weights_from_before_them_and_the_rate_is_told_as_it_is(batch):
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
    before = weights(learner.policy)
    prepared = poisoned(learner.prepare(batch))
    steps = [learner.step(prepared) for _ in range(9)]
    rates = [step["lr"] for step in steps]
    ends = [step["loop/at_end"] for step in steps if "loop/at_end" in step]
    assert ends == [1 / Stability().widest], "told once, when no lower rate is left"
    assert rates[:2] == [3e-2, 3e-2 / 4] and rates[-1] == 3e-2 / Stability().widest
    learner.loop.load_state_dict(learner.loop.state_dict())  # a resume counts on
    with pytest.raises(
        NotFinite, match=r"^10 steps in a row were undone, the last at 0\.01 times .* the loss of step 10 is"
    ):
        learner.step(prepared)
    assert torch.equal(weights(learner.policy), before) and learner.version == 9


def test_a_step_that_is_done_ends_a_run_of_undone_ones(batch):
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
    learner.step(poisoned(learner.prepare(batch)))
    assert learner.loop.undone == 1 and learner.step(learner.prepare(batch))["loop/kept"] > 0
    assert learner.loop.undone == 0


def test_a_schedule_is_divided_out_of_what_is_followed(batch):
    decaying = replace(FAST, learning_rate=1e-3, decay="linear")
    learner = Learner(Shallow().load(), small_run(optimization=decaying, stability=Stability()), total_steps=4)
    learner.models.version = 2
    metrics = learner.step(learner.prepare(batch))
    assert metrics["lr"] == 5e-4 and metrics["loop/factor"] == 1.0
    assert learner.loop.state["whole"] == pytest.approx(metrics["loop/attempted"] / 0.5**2)


def test_without_an_advantage_the_rate_falls_where_a_regulariser_goes_too_far_and_never_rises(batch):
    for strength, lower in ((1e3, True), (1e-9, False)):
        bonus = (EntropyBonus(coef=strength),)
        learner = Learner(
            Shallow().load(),
            small_run(
                optimization=FAST, regularisers=bonus, stability=Stability(region=Region(kl=1e-4 if lower else 5.0))
            ),
        )
        flat = replace(learner.prepare(batch), advantage_NS=torch.zeros(batch.shape))
        metrics = learner.step(flat)
        assert metrics["signal_frac"] == 0 and metrics["grad_norm"] > 0
        assert (learner.loop.factor < 1.0) == lower and learner.loop.factor <= 1.0


@pytest.mark.slow
def test_a_step_that_is_not_finite_leaves_every_model_where_it_was(batch):
    class Breaks(Learner):
        def _move(self, names, metrics):
            if self.models.updates:  # the second minibatch, when the first has moved both
                self.policy.get_parameter(next(iter(dict(self.policy.named_parameters())))).grad.fill_(float("nan"))
            return super()._move(names, metrics)

    run = replace(ppo(), policy=Shallow(), optimization=FAST, stability=Stability(), critic=HiddenValue(hidden=(8,)))
    learner = Breaks(run.policy.load(), run)
    before = weights(learner.policy), weights(learner.models["critic"])
    metrics = learner.step(learner.prepare(batch))
    assert metrics["loop/not_finite"] == 1.0 and learner.models.updates == 1
    assert torch.equal(weights(learner.policy), before[0]) and torch.equal(weights(learner.models["critic"]), before[1])


def test_a_single_move_is_refused_for_it_would_go_unmeasured(batch):
    learner = Learner(Shallow().load(), small_run(optimization=FAST, stability=Stability()))
    learner.forward_backward(learner.prepare(batch))
    with pytest.raises(ValueError, match=r"learner.step\(batch\)"):
        learner.optim_step()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda state: state.pop("loop"), "no Stability state"),
        (lambda state: state["loop"].pop("rule"), "rule is absent"),
        (lambda state: state["loop"]["score"].pop("care"), "score/care is absent"),
        (lambda state: state["loop"]["score"].update(good=0.0, due=1.0), "good/weights is absent"),
        (lambda state: state["loop"]["rule"].update(factor=math.nan), "rule/factor of Stability is nan"),
    ],
)
def test_a_state_that_is_not_of_this_loop_is_refused(damage, says):
    run = small_run(optimization=FAST, stability=Stability(fallback=Fallback()))
    state = Learner(Shallow().load(), run).save_state()
    damage(state)
    with pytest.raises(ValueError, match=says):
        Learner(Shallow().load(), run).load_state(state)
