"""Five followers of a moving target: each by hand, what it reduces to, and the frontier that they draw."""

import math
from dataclasses import dataclass

import pytest
import torch

from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.base import AbstractController
from gimbal.controllers.smoothed import Smoothed
from gimbal.ops import philox


@dataclass(frozen=True, kw_only=True)
class Averaged(AbstractController):
    """value <- decay value + (1 - decay) signal"""

    decay: float = 0.0
    signal: str = "x"

    def init(self):
        return {"value": 0.0}

    def update(self, state, signals):
        return {"value": self.decay * state["value"] + (1 - self.decay) * signals[self.signal]}


TARGET = Averaged()  # the rule "be where the signal is"
FREE = {"rule": TARGET, "share": 1.0, "cap": math.inf, "band": 0.0}
UNCAPPED = Smoothed(**FREE)


def follow(rule, signals, name="x"):
    state, values = rule.init(), []
    for signal in signals:
        state = rule.update(state, {name: signal})
        values.append(state["value"])
    return values


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({}, [1.0, 1.0, -1.0]),
        ({"cap": 0.25}, [0.25, 0.5, 0.25]),
        ({"share": 0.5}, [0.5, 0.75, -0.125]),
        ({"share": 0.5, "cap": 0.3}, [0.3, 0.6, 0.3]),
        ({"band": 1.5}, [0.0, 0.0, 0.0]),
        ({"band": 0.5}, [1.0, 1.0, -1.0]),
        ({"band": 0.5, "edge": True}, [0.5, 0.5, -0.5]),
    ],
    ids=["uncapped", "cap", "average", "hybrid", "within the band", "out of it", "to its edge"],
)
def test_by_hand(change, values):
    assert follow(Smoothed(**FREE | change), [1.0, 1.0, -1.0]) == pytest.approx(values)


@pytest.mark.parametrize("rule", [AdaptiveKL(gain=0.5), AdaptiveKL(gain=0.1, initial=0.3), TARGET])
def test_reduces_to_the_rule(rule):
    signals = [0.0, 0.02, 5.0, 0.013, 0.0, 1.0]
    assert follow(Smoothed(rule=rule, share=1.0, cap=math.inf), signals, rule.signal) == follow(
        rule, signals, rule.signal
    )


@pytest.mark.parametrize("change", [{"cap": 0.0}, {"share": 0.0}])
def test_reduces_to_frozen(change):
    assert follow(Smoothed(**FREE | change), [1.0, -5.0, 3.0]) == [0.0, 0.0, 0.0]


def test_share_alone_is_an_exponential_average():
    signals = [1.0, -5.0, 3.0, 0.5]
    average = Averaged(decay=0.7)
    assert follow(Smoothed(**FREE | {"share": 0.3}), signals) == pytest.approx(follow(average, signals))


def test_the_frontier_of_noise_and_a_step():
    """The target jumps half-way and is noisy throughout: the followers trade pursuit for calm, the hybrid most of it."""
    noise = philox(0, "frontier").normal(0, 0.15, 400)
    target = [0.2 + 0.5 * (t >= 200) + noise[t] for t in range(400)]
    kinds = {"uncapped": {}, "cap": {"cap": 0.1}, "average": {"share": 0.3}, "hybrid": {"share": 0.3, "cap": 0.1}}

    def judged(change):
        """How near the target it is, how calm (1 is always there and never moves), and how often it crosses over."""
        value_T = torch.tensor(follow(Smoothed(**FREE | change), target))
        near, calm = 1 - (value_T - torch.tensor(target)).abs().mean(), 1 - value_T.diff().abs().mean()
        return float(near), float(calm), int((value_T > 0.45).int().diff().abs().sum())

    points = {kind: judged(change)[:2] for kind, change in kinds.items()}
    assert points["uncapped"][0] == 1 and min(points[k][1] for k in kinds if k != "uncapped") > points["uncapped"][1]
    assert points["hybrid"][1] >= max(points["cap"][1], points["average"][1]) > points["uncapped"][1]
    assert judged(kinds["hybrid"])[2] < judged(kinds["uncapped"])[2]


@pytest.mark.parametrize("change", [{"share": 1.5}, {"cap": -0.1}, {"band": -1.0}])
def test_refusals(change):
    with pytest.raises(ValueError, match="the share lies"):
        Smoothed(**change)
