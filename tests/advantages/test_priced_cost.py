"""A price on what steps cost: by hand, its limits, and that the multiplier finds the price of a constraint whose optimum is known."""

from dataclasses import replace

import pytest
import torch

from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER, PricedCost
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.records import TrainBatch


def batch(reward_NS, cost_NS):
    reward_NS, cost_NS = torch.tensor(reward_NS), torch.tensor(cost_NS)
    mask_NS = torch.ones_like(reward_NS, dtype=torch.bool)
    mask_NS[-1, -1] = False
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, facts={COST_AFTER: cost_NS})


BATCH = batch([[1.0, 2.0], [0.5, 9.0]], [[0.0, 3.0], [1.0, 9.0]])


def test_by_hand_step_by_step():
    priced_NS = PricedCost(multiplier=3.0)(BATCH)
    assert priced_NS.tolist() == [[0.25, (2 - 9) / 4], [(0.5 - 3) / 4, 0.0]]
    assert PricedCost().report(BATCH) == {"cost/step": pytest.approx(4 / 3)}


def test_limits():
    assert torch.equal(PricedCost(multiplier=0.0)(BATCH), BATCH.column("reward_NS", None))
    assert torch.allclose(PricedCost(multiplier=1e7)(BATCH), -BATCH.column(COST_AFTER, None), atol=1e-5)
    free = BATCH.with_columns({COST_AFTER: torch.zeros(2, 2)})
    assert torch.equal(PricedCost(multiplier=3.0)(free) * 4, BATCH.column("reward_NS", None))


def test_the_multiplier_finds_the_price_and_the_share_of_a_constraint_that_is_known():
    """Two actions, of reward 0 and 2 and cost 0 and 1, at most .3 of cost: the best plays the second with .3, at a price of 2."""
    price, rule = (
        PricedCost(multiplier=0.0),
        Lagrangian(signal="cost/step", limit=0.3, rate=0.01, initial=0.0, high=10.0),
    )
    state, taken = rule.init(), []
    for _ in range(4_000):
        now = replace(price, multiplier=state["value"])
        best = int(now(TrainBatch(mask_NS=torch.ones(2, 1, dtype=torch.bool), reward_NS=torch.tensor([[0.0], [2.0]]),
                                  facts={COST_AFTER: torch.tensor([[0.0], [1.0]])})).argmax())  # fmt: skip
        taken.append(best)
        played = batch([[0.0, 0.0]], [[float(best), 0.0]])
        state = rule.update(state, now.report(played))
    assert sum(taken[1_000:]) / 3_000 == pytest.approx(0.3, abs=0.01)
    assert state["value"] == pytest.approx(2.0, abs=0.02)


def test_what_tells_no_cost_is_refused_by_what_to_do():
    with pytest.raises(ValueError, match=r"let the environment's step return info=\{'cost': number\}"):
        PricedCost()(replace(BATCH, facts={}))
    with pytest.raises(ValueError, match=r"some of these tell none.*leave store\.prior out"):
        PricedCost()(BATCH.with_columns({COST_AFTER: torch.full((2, 2), torch.nan)}))
    with pytest.raises(ValueError, match=r"PricedCost\.multiplier is -1\.0"):
        PricedCost(multiplier=-1.0)
