"""Prompt-GDRO's weights against the law written out, their limits, and that the gradient of a task is multiplied by its own."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from watched import group

from gimbal.advantages.shapings.emphasised import COLUMN, Emphasised
from gimbal.dataflow.base import Progress
from gimbal.dataflow.curricula.adversarial import Adversarial
from gimbal.environments.dataset import Rows
from gimbal.records import TrainBatch
from gimbal.rewards.expected import Expected

TASKS = Rows(rows=[{"prompt": f"{n}"} for n in range(12)])
EASY, HARD = [1, 1, 1, 1], [0, 0, 0, 1]


def outcome(task):
    return HARD if int(task.prompt) < 3 else EASY


def after(spec, steps=6, batch=12):
    """The curriculum, and the weights that each step gave out by prompt."""
    live, given = spec.start(TASKS, 0), []
    for version in range(steps):
        live.step(Progress(version=version, drawn=0))
        tasks = [live.next() for _ in range(batch)]
        given.append({task.prompt: task.columns[COLUMN] for task in tasks})
        for n, task in enumerate(tasks):
            live.observe(group(task, outcome(task), index=n))
    return live, given


def test_the_weights_are_the_law_written_out():
    spec = Adversarial(fade=1.0, fresh=0.0, slack=0.0, rate=2.0, blend=0.25)
    _, given = after(spec)
    # With the last visit alone p is (1 + 1) / 6 for the hard and 5 / 6 for the easy: bins 3 and 8, after the first step in bin 5.
    first = 0.25 * (3 * 0.75 + 9 * 0.0) / 12
    assert set(given[0].values()) == {1.0}
    score = 0.0
    for step in range(1, 6):
        for prompt, weight in given[step].items():
            assert weight == pytest.approx(math.exp(2.0 * score) if int(prompt) < 3 else 1.0)
        score += 0.25 * (0.75 - score)
    live, _ = after(spec, steps=1)
    live.step(Progress(version=1, drawn=0))
    assert live.scores[5] == pytest.approx(first) and live.metrics()["Adversarial/largest"] == math.exp(2 * first)


@pytest.mark.parametrize("spec", [Adversarial(rate=0.0), Adversarial(bins=1), Adversarial(most=1.0)], ids=repr)
def test_the_limits(spec):
    _, given = after(spec)
    for weights in given:
        assert len(set(weights.values())) == 1
        assert spec.bins == 1 or set(weights.values()) == {1.0}


def test_the_weights_maximise_the_entropic_objective():
    """q = omega / sum omega is the best of sum q S + H(q) / rate on a grid of two bins."""
    live, _ = after(Adversarial(fade=1.0, fresh=0.0, slack=0.0, rate=2.0, blend=1.0))
    live.step(Progress(version=6, drawn=0))
    hard, easy = live.scores[3], live.scores[8]
    assert hard == 0.75 and easy == 0.0
    ours = live.weight(3) / (live.weight(3) + live.weight(8))

    def worth(q):
        return q * hard + (1 - q) * easy - (q * math.log(q) + (1 - q) * math.log(1 - q)) / 2.0

    assert all(worth(ours) >= worth(n / 1000) for n in range(1, 1000))


def test_a_bin_is_left_only_beyond_its_edge():
    live = Adversarial(slack=0.1, bins=2, fade=1.0, fresh=1.0).start(TASKS, 0)
    task = live.next()
    assert live.bin(task.id) == 1  # p = 1/2
    live.observe(group(task, [0, 1, 0]))  # p = 2/5
    assert live.bin(task.id) == 1
    live.observe(group(task, [0]))  # p = 1/3
    assert live.bin(task.id) == 0
    live.observe(group(task, [1, 1, 1]))  # p = 5/9
    assert live.bin(task.id) == 0


def test_a_reward_hands_the_weight_to_the_advantages():
    live, _ = after(Adversarial())
    live.step(Progress(version=6, drawn=0))
    task = next(t for t in (live.next() for _ in range(12)) if int(t.prompt) < 3)
    score = Expected(column=COLUMN, name=COLUMN, weight=0.0)(group(task, HARD))
    assert set(score) == {task.columns[COLUMN]} and score[0] > 1
    batch = TrainBatch(
        mask_NS=torch.tensor([[True, True], [True, False]]),
        advantage_NS=torch.tensor([[1.0, -2.0], [3.0, 4.0]]),
        facts={f"score/{COLUMN}": torch.tensor([2.0, 0.5])},
    )
    assert torch.equal(Emphasised()(batch), torch.tensor([[2.0, -4.0], [1.5, 0.0]]))


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match="blend 0"):
        Adversarial(blend=0.0)
    with pytest.raises(ValueError, match="most 0"):
        replace(Adversarial(), most=0.5)
