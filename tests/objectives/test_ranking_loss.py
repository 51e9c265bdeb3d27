"""DeScore: a head that learns from pairs, and thoughts that are paid by what the head makes of them."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.reward_shaping.ranked_rightly import RankedRightly
from gimbal.objectives.values.ranking_loss import RankingLoss
from gimbal.ops import SequenceMean
from gimbal.records import TrainBatch
from gimbal.runtime import compose

LENGTH = (3, 1, 2, 3)


def rows(score, *, pair=(0, 0, 1, 1), preferred=(1, 0, 1, 0), group=(0, 0, 1, 1)):
    """Rows whose score stands at their last decision, and something else before it and behind."""
    score_N = torch.tensor(score, dtype=torch.float64)
    n = len(score)
    mask_NS = torch.arange(3) < torch.tensor(LENGTH[:n])[:, None]
    value_NS = torch.full((n, 3), 7.0, dtype=torch.float64)
    value_NS[torch.arange(n), torch.tensor(LENGTH[:n]) - 1] = score_N
    return TrainBatch(
        mask_NS=mask_NS,
        value_NS=value_NS,
        new_value_NS=value_NS.clone().requires_grad_(),
        reward_NS=torch.zeros(n, 3),
        group_N=torch.tensor(group[:n]),
        facts={
            "score/pair": torch.tensor(pair[:n], dtype=torch.float64),
            "score/good": torch.tensor(preferred[:n], dtype=torch.float64),
        },
    )


LOSS = RankingLoss(pair="pair", preference="good")


def total(method, batch):
    """The loss as the learner weighs it with SequenceMean, times rows: a sum over rows."""
    terms = method(torch.zeros(batch.mask_NS.shape), batch)
    return (SequenceMean()(batch.mask_NS, None) * terms.loss_NS).sum() * len(batch.mask_NS), terms


def test_gradient_of_a_pair_is_that_of_bradley_and_terry():
    batch = rows([0.3, -0.2])
    loss, _ = total(LOSS, batch)
    (got,) = torch.autograd.grad(loss, batch.new_value_NS)
    s = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    (want,) = torch.autograd.grad(-torch.nn.functional.logsigmoid(s[0] - s[1]), s)
    assert got[0, 2] == pytest.approx(want[0].item(), abs=1e-7) and got[1, 0] == pytest.approx(want[1].item(), abs=1e-7)
    assert got.abs().sum().item() == pytest.approx(want.abs().sum().item(), abs=1e-7)  # nowhere else
    assert loss.item() == pytest.approx(2 * math.log(1 + math.exp(-0.5)), abs=1e-6)


def test_equal_scores_cost_log_2_and_a_large_lead_nothing():
    assert total(LOSS, rows([0.0, 0.0]))[0].item() == pytest.approx(2 * math.log(2), abs=1e-6)
    assert total(LOSS, rows([50.0, -50.0]))[0].item() < 1e-6


def test_several_thoughts_are_held_against_the_mean_of_the_others():
    batch = rows([1.0, 0.0, -2.0], pair=(0, 0, 0), preferred=(1, 0, 0), group=(0, 1, 1))
    loss, terms = total(LOSS, batch)
    by_hand = math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1)) + math.log(1 + math.exp(-3))
    assert loss.item() == pytest.approx(by_hand, abs=1e-6)
    assert terms.metrics["rank/accuracy"][:, 0].tolist() == [1, 1, 1]


def test_three_levels_have_somebody_above_and_below():
    batch = rows([0.0, 0.0, 0.0], pair=(0, 0, 0), preferred=(0, 1, 2), group=(0, 1, 2))
    loss_N = LOSS(torch.zeros(3, 3), batch).loss_NS[:, 0]
    assert loss_N.tolist() == pytest.approx([math.log(2), 2 * math.log(2), math.log(2)], abs=1e-6)


def test_nobody_to_compare_with_is_nothing():
    for batch in (rows([3.0, -1.0], preferred=(1, 1)), rows([3.0, -1.0], pair=(0, 1))):
        loss, terms = total(LOSS, batch)
        assert loss.item() == 0 and torch.isfinite(terms.loss_NS).all()
        assert torch.autograd.grad(loss, batch.new_value_NS)[0].abs().max() == 0
    assert torch.equal(RankedRightly(pair="pair", preference="good")(rows([3.0, -1.0], pair=(0, 1))), torch.zeros(2, 3))


def test_reduces_to_no_head_with_coef_0():
    batch = rows([0.3, -0.2])
    loss, _ = total(replace(LOSS, coef=0.0), batch)
    assert loss.item() == 0 and torch.autograd.grad(loss, batch.new_value_NS)[0].abs().max() == 0


def test_groups_and_returns_are_the_pairs_if_none_is_named():
    batch = rows([0.3, -0.2, 0.5, 0.9], pair=(0, 0, 0, 0))
    batch.reward_NS[0, 2] = batch.reward_NS[2, 1] = 1.0
    plain, named = RankingLoss(), LOSS
    again = rows([0.3, -0.2, 0.5, 0.9])
    torch.testing.assert_close(total(plain, batch)[0], total(named, again)[0])


def test_the_survey_makes_micro_batches_the_whole():
    batch = rows([0.3, -0.2, 0.5, 0.9])
    whole = batch.with_columns(LOSS.survey(batch))
    want = LOSS(torch.zeros(4, 3), whole).loss_NS[:, 0]
    for row in range(4):  # each far from the other of its pair
        part = whole.select(torch.tensor([row]))
        assert LOSS(torch.zeros(part.mask_NS.shape), part).loss_NS[0, 0] == want[row]


def test_a_thought_is_paid_by_the_side_its_score_is_on():
    shape = RankedRightly(pair="pair", preference="good", weight=2.0)
    batch = rows([1.0, 1.5, 0.0, 0.9], pair=(0, 0, 0, 0), preferred=(1, 0, 0, 1), group=(0, 1, 1, 0))
    paid = shape(batch)
    assert paid.sum(-1).tolist() == [1.0, 0.0, 2.0, 1.0]
    assert [int(row.nonzero()[0]) for row in paid if row.any()] == [2, 1, 2]  # at the last decision
    assert shape.report(batch) == {"rank/right": pytest.approx(0.5)}


def test_equal_scores_are_not_right():
    assert RankedRightly(pair="pair", preference="good")(rows([1.0, 1.0, 2.0, 2.0])).abs().max() == 0


def test_a_head_that_ignores_the_thought_teaches_the_thought_nothing():
    batch = rows([1.0, 1.0, 0.2, 0.2], pair=(0, 0, 0, 0), preferred=(1, 1, 0, 0), group=(0, 0, 1, 1))
    shaped = replace(batch, reward_NS=RankedRightly(pair="pair", preference="good")(batch))
    assert GroupNormalized()(shaped).abs().max() == 0


def test_reduces_to_the_rewards_with_weight_0():
    batch = rows([1.0, 0.0, 0.2, 0.9])
    assert torch.equal(RankedRightly(pair="pair", preference="good", weight=0.0)(batch), batch.reward_NS)


@pytest.mark.slow
def test_the_recipe_is_accepted_and_its_head_learns(single_thread):
    from gimbal.recipes.papers.rewards.descore import descore
    from gimbal.runtime.local import Trainer

    run = replace(descore(), prompts_per_step=2, num_generations=2, steps=1, threads=1)
    assert compose.check(run) is not None
    trainer = Trainer(run)
    before = [p.detach().clone() for p in trainer.learner.models["critic"].parameters()]
    metrics, groups, _ = trainer.advance()
    assert groups[0].task.columns["pair"] == groups[1].task.columns["pair"] and 0 <= metrics["rank/accuracy"] <= 1
    assert any(
        not torch.equal(a, b) for a, b in zip(before, trainer.learner.models["critic"].parameters(), strict=True)
    )
    trainer.close()
