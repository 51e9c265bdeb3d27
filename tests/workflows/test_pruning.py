"""Who is pruned, by what prediction, and that what is left, weighted, has the mean of all."""

import itertools
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("engines", "runtime")]
from small import Digits, small_run
from test_native import ids, policy, request

from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.engines.base import drained
from gimbal.engines.native import Native
from gimbal.ops import philox
from gimbal.records import Drop, Group
from gimbal.runtime import compose
from gimbal.runtime.checkpoint import FORMAT
from gimbal.runtime.checkpoint import load as load_checkpoint
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut
from gimbal.workflows.pruning import Pruning
from gimbal.workflows.quality import UNTRAINED, QualityHead, survival
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

HEAD = QualityHead(bins=16, prior=1.0, width=16, rate=1e-2, passes=10)


class Short(Digits):
    """1 if the text has an even number of letters."""

    def __call__(self, group: Group) -> list[float | None]:
        return [float(len(r.text) % 2 == 0) for r in group.rollouts]


@pytest.fixture(scope="module")
def made():
    return policy()


def started(made, workflow):
    live = Driven(engine=Native(slots=64, precision="float32"), workflow=workflow).start(made)
    live.load(0, made.state_dict())
    return live


def group(live, index, count=16, length=8):
    for sample in range(count):
        live.submit(request("hello", group=index, sample=sample, max_length=length, temperature=4.0))


def outcomes(live):
    return {key: item.outcome for key, item in drained(live).items()}


def small(**given) -> Pruning:
    return Pruning(**({"at": 3, "warm_up": 0, "head": QualityHead(width=16, bins=16), "reward": Short()} | given))


def learned(right_by_first: bool = True, rounds: int = 30):
    """A head that has seen 64 states, of which those whose first number is above 0 are right."""
    generator = torch.Generator().manual_seed(0)
    memory = UNTRAINED
    for _ in range(rounds):
        state_NH = torch.randn(64, 8, generator=generator)
        memory = HEAD.learned(memory, state_NH, (state_NH[:, 0] > 0).double())
    state_NH = torch.randn(256, 8, generator=generator)
    return memory, state_NH, state_NH[:, 0] > 0


def test_the_hidden_state_is_that_of_the_policy_where_it_was_asked_for(made):
    live = started(made, SingleTurn())
    group(live, 0, count=5)
    rows = [outcome.last for outcome in outcomes(live).values()]
    rows = [row for row in rows if row.length >= 3]
    assert len(rows) >= 2
    found_NH = live.hidden(rows, 2)
    for row, found_H in zip(rows, found_NH, strict=True):
        own = [*row.decisions.ids_NL[0, : int(row.decisions.prompt_N[0])].tolist(), *ids(row)[:2]]
        exact_LH = made.model.base_model(torch.tensor([own])).last_hidden_state[0]
        torch.testing.assert_close(found_H, exact_LH[-1].detach(), atol=1e-4, rtol=1e-4)


def test_survival_has_the_mean_that_was_asked_for_and_falls_with_the_prediction():
    for keep, strength in itertools.product((0.2, 0.5, 0.8), (0.1, 0.5, 3.0)):
        quality_N = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        chance_N = survival(strength * (0.5 - quality_N), keep, 0.1, 0.9)
        assert float(chance_N.mean()) == pytest.approx(keep) and chance_N.min() >= 0.1 and chance_N.max() <= 0.9
        order = quality_N.argsort()
        assert bool((chance_N[order].diff() <= 1e-12).all()) and chance_N.max() > chance_N.min()
    two = survival(0.5 * (0.5 - torch.tensor([0.2, 0.6], dtype=torch.float64)), 0.5, 0.1, 0.9)
    assert two.tolist() == pytest.approx([0.6, 0.4])  # apart by strength times the gap, about the mean


def test_at_strength_0_it_is_random_pruning_at_the_rate_of_keep():
    memory, state_NH, _ = learned()
    chance_N = small(strength=0.0, keep=0.3).chances(memory, state_NH)
    assert chance_N.tolist() == pytest.approx([0.3] * len(chance_N))


def test_the_head_learns_and_its_calibrated_output_is_a_probability():
    memory, state_NH, right_N = learned()
    score_N = HEAD.score(memory, state_NH)
    assert float(((score_N > 0.5) == right_N).double().mean()) > 0.9
    quality_N = HEAD.quality(memory, score_N)
    assert abs(float(quality_N.mean()) - float(right_N.double().mean())) < 0.1
    assert quality_N[right_N].mean() > quality_N[~right_N].mean() + 0.3
    assert HEAD.score(UNTRAINED, state_NH).tolist() == [0.5] * 256 and UNTRAINED["weights"] == []


def test_the_calibration_is_bayes_rule_on_the_counts():
    count_2B = torch.zeros(2, 16, dtype=torch.float64)
    count_2B[0, 3], count_2B[1, 3], count_2B[1, 12] = 6, 2, 4
    score_N = torch.tensor([3.5, 12.1, 15.0], dtype=torch.float64) / 16
    found = HEAD.quality({"count_2B": count_2B}, score_N).tolist()
    for value, bin in zip(found, (3, 12, 15), strict=True):
        wrong, right = ((count_2B[y, bin] + 1) / (6 + 16) for y in (0, 1))  # six of each outcome
        assert value == pytest.approx(float(right / (right + wrong)))


def test_its_gradient_is_that_of_the_cross_entropy():
    """One step of Adam moves every weight by the rate against the sign of its slope, found by finite differences."""
    state_NH = torch.randn(12, 4, generator=torch.Generator().manual_seed(3))
    right_N = (state_NH[:, 1] > 0).double()
    one = replace(HEAD, passes=1)
    before = one.learned(UNTRAINED, state_NH, right_N)
    after = one.learned(before, state_NH, right_N)
    first = {"rounds": 0, "weights": before["weights"], "moments": [], "count_2B": None}
    moved = one.learned(first, state_NH, right_N)

    def loss(weights):
        score_N = one.score({"weights": weights}, state_NH)
        return float(torch.nn.functional.binary_cross_entropy(score_N, right_N))

    for at in (2, 3):
        for place in range(before["weights"][at].numel()):
            slopes = []
            for step in (1e-6, -1e-6):
                shifted = [weight.clone() for weight in before["weights"]]
                shifted[at].view(-1)[place] += step
                slopes.append(loss(shifted))
            slope = (slopes[0] - slopes[1]) / 2e-6
            change = float((moved["weights"][at] - before["weights"][at]).view(-1)[place])
            if abs(slope) > 1e-6:
                assert change == pytest.approx(-one.rate * (1 if slope > 0 else -1), rel=1e-2)
    assert loss(after["weights"]) < loss(before["weights"])


def test_keeping_all_it_is_single_turn_bit_for_bit(made):
    lives = [started(made, workflow) for workflow in (SingleTurn(), small(keep=1.0))]
    for live in lives:
        group(live, 0)
        group(live, 1)
    plain, ours = (outcomes(live) for live in lives)
    for key, outcome in plain.items():
        assert ids(ours[key].last) == ids(outcome.last) and ours[key].last.inclusion == 1
        assert torch.equal(ours[key].last.behavior_S, outcome.last.behavior_S)


def test_a_run_that_keeps_all_trains_the_same_weights_as_without_it():
    states = []
    for workflow in (SingleTurn(), small(keep=1.0, reward=Digits())):
        trainer = Trainer(small_run(workflow=workflow, held_out=None, steps=2))
        try:
            trainer.begin()
            trainer.advance()
            trainer.advance()
            states.append({name: value.clone() for name, value in trainer.learner.policy.state_dict().items()})
        finally:
            trainer.close()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def pruned(made, workflow, rounds=3):
    """A head that has learned from some groups, and what became of a later one."""
    live = started(made, workflow)
    for index in range(rounds):
        group(live, index)
        outcomes(live)
        live.load(index + 1, made.state_dict())
    group(live, 99)
    return live, {key[1]: outcome for key, outcome in outcomes(live).items()}


def test_the_pruned_end_where_they_are_judged_and_the_others_are_as_they_would_have_been(made):
    live, found = pruned(made, small(keep=0.5, strength=2.0))
    plain = started(made, SingleTurn())
    group(plain, 99)
    whole = {key[1]: outcome.last for key, outcome in outcomes(plain).items()}
    lost = [outcome for outcome in found.values() if isinstance(outcome, Drop)]
    assert 0 < len(lost) < 16 and all(outcome.reason == "pruned" and outcome.drawn == 3 for outcome in lost)
    chances = set()
    for sample, outcome in found.items():
        if isinstance(outcome, Drop):
            assert whole[sample].length > 3
            continue
        row = outcome.last
        assert ids(row) == ids(whole[sample])
        assert (row.inclusion == 1) == (row.state_H is None) == (row.length <= 3)
        chances.add(row.inclusion)
    assert len(chances) > 2, "the head tells states apart"
    assert live.in_flight == 0


def test_warm_up_prunes_nothing_and_learns(made):
    live, found = pruned(made, small(warm_up=4), rounds=3)
    assert not any(isinstance(outcome, Drop) for outcome in found.values())
    assert live.memory["head"]["rounds"] == 3 and live.memory["ended"]


def test_the_order_of_arrival_does_not_matter():
    workflow, states = small(), torch.randn(6, 8, generator=torch.Generator().manual_seed(5))
    ended = [(index // 2, index % 2, state_H, float(index % 3 == 0)) for index, state_H in enumerate(states)]
    one, other = (
        workflow.renewed({"head": UNTRAINED, "ended": tuple(order)})["head"] for order in (ended, ended[::-1])
    )
    assert all(torch.equal(x, y) for x, y in zip(one["weights"], other["weights"], strict=True))
    assert torch.equal(one["count_2B"], other["count_2B"])


def test_a_run_resumed_in_the_middle_prunes_the_same(made, tmp_path):
    def through(cut):
        live = started(made, small(keep=0.5, strength=2.0))
        found = {}
        for index in range(4):
            group(live, index)
            steps = 0
            while live.in_flight:
                found |= {item.key: item.outcome for item in live.step()}
                steps += 1
                if (index, steps) == cut:
                    torch.save(live.state_dict() | {"format": FORMAT}, tmp_path / "state.pt")
                    state = load_checkpoint(tmp_path)
                    live = started(made, small(keep=0.5, strength=2.0))
                    live.load(index, made.state_dict())
                    live.load_state_dict(state)
            live.load(index + 1, made.state_dict())
        return found, live.memory["head"]

    whole, head = through(None)
    for cut in ((2, 2), (2, 5), (3, 4)):
        again, other = through(cut)
        assert {key: told(outcome) for key, outcome in again.items()} == {
            key: told(outcome) for key, outcome in whole.items()
        }
        assert all(torch.equal(x, y) for x, y in zip(head["weights"], other["weights"], strict=True))


def told(outcome):
    if isinstance(outcome, Drop):
        return outcome.reason, outcome.drawn
    return ids(outcome.last), outcome.last.behavior_S.tolist(), outcome.last.inclusion


def test_weighted_by_inclusion_the_mean_of_the_group_is_unbiased():
    """By enumeration of who survives: the Horvitz-Thompson mean is the group's; the plain mean of survivors is not."""
    quality_N = torch.tensor([0.9, 0.8, 0.2, 0.1, 0.4], dtype=torch.float64)
    reward = [1.0, 1.0, 0.0, 0.0, 1.0]
    chance = survival(0.5 * (0.5 - quality_N), 0.5, 0.1, 0.9).tolist()
    weighted = plain = total = 0.0
    for kept in itertools.product([True, False], repeat=5):
        p = 1.0
        for keep, s in zip(kept, chance, strict=True):
            p *= s if keep else 1 - s
        weighted += p * sum(r / s for keep, r, s in zip(kept, reward, chance, strict=True) if keep) / 5
        if any(kept):
            plain += p * sum(r for keep, r in zip(kept, reward, strict=True) if keep) / sum(kept)
            total += p
    assert weighted == pytest.approx(0.6) and plain / total < 0.57


def test_the_chances_that_are_drawn_are_those_that_are_recorded(made):
    """Over many tasks, survivors' weights add up to the number of rollouts that were judged."""
    live, _ = pruned(made, small(keep=0.5, strength=2.0))
    head, workflow = live.memory["head"], small(keep=0.5, strength=2.0)
    state_NH = torch.randn(16, 32, generator=torch.Generator().manual_seed(7))
    chance_N = workflow.chances(head, state_NH)
    total = Counter()
    for task in range(2000):
        for sample, chance in enumerate(chance_N.tolist()):
            if philox("pruning", 0, f"task {task}", sample).random() < chance:
                total[sample] += 1 / chance
    for sample, chance in enumerate(chance_N.tolist()):
        assert total[sample] / 2000 == pytest.approx(1, abs=4 * ((1 / chance - 1) / 2000) ** 0.5)


def test_the_rule_prunes_the_likely_right_ones_also_where_most_fail():
    """As published. The aim acts through the clip alone, which docs/log.md calls a fault of the rule."""
    memory, state_NH, right_N = learned()
    for few in (right_N, ~right_N):
        some_NH = torch.cat([state_NH[~few][:18], state_NH[few][:2]])
        some_N = torch.cat([right_N[~few][:18], right_N[few][:2]])
        chance_N = small().chances(memory, some_NH)
        assert chance_N[some_N].mean() < chance_N[~some_N].mean()


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"keeps 0\.95"):
        Pruning(keep=0.95)
    with pytest.raises(ValueError, match="at 0"):
        Pruning(at=0)
    with pytest.raises(ValueError, match="aim 2"):
        Pruning(aim=2.0)
    with pytest.raises(ValueError, match="bins 0"):
        QualityHead(bins=0)
    run = small_run(workflow=Pruning(reward=Digits()), held_out=HeldOut(tasks=small_run().tasks))
    with pytest.raises(ValueError, match=r"not measure the policy: held_out.workflow='SingleTurn\(\)'"):
        compose.check(run)
    compose.check(small_run(workflow=Pruning(reward=Digits()), held_out=None))
    compose.check(small_run(workflow=Pruning(reward=Digits()), advantage=InclusionNormalized(), held_out=None))
