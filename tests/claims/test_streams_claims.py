"""The claims on streams and on forecasts: arms that differ in one thing, and settings that are the rule's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import forcing
import forecasts
import made
import searched
import self_distilled
import stream_pairs
import stream_scores
import streams
import torch

from gimbal.dataflow.filters.unspoilt import Unspoilt
from gimbal.dataflow.real_samples import RealSamples
from gimbal.learning.updates.discriminator import AdversarialLoss
from gimbal.records import Episode, Group
from gimbal.rewards.digits import digits


def test_the_past_is_all_that_differs():
    own, real = (streams.run_of(arm, 1e-4, 2) for arm in (streams.OWN, streams.REAL))
    assert own == replace(real, workflow=replace(real.workflow, past=None)) and real.workflow.past == RealSamples()
    assert (own.workflow.blocks, own.seed, own.update.optimization.learning_rate) == (6, 2, 1e-4)
    assert own.prompts_per_step * own.num_generations == 32 and own.sampling.max_length == 4 and streams.LONG == 12


def test_the_reward_or_the_filter_is_all_that_differs():
    runs = {arm: stream_pairs.run_of(arm, 1e-4, 2) for arm in stream_pairs.TUNED.arms}
    classes = runs[stream_pairs.CLASSES]
    assert classes == streams.run_of(streams.OWN, 1e-4, 2) == runs[stream_pairs.BASE]
    pairs = runs[stream_pairs.PAIRS]
    assert replace(pairs, rewards=classes.rewards) == classes
    assert [reward.name for reward in pairs.rewards if reward.weight] == ["same"]
    unspoilt = runs[stream_pairs.UNSPOILT]
    assert replace(unspoilt, filters=()) == classes and unspoilt.filters == (Unspoilt(),) and not classes.filters
    others = runs[stream_pairs.OTHERS]
    assert replace(others, filters=()) == classes and others.filters == (stream_pairs.AsMany(),)
    assert classes.prompts_per_step * classes.num_generations * classes.workflow.blocks == stream_pairs.DRAWN


def test_as_many_other_blocks_are_left_out_and_never_a_first_one():
    def out(group):
        return [[not row.mask_S.any() for row in episode.rows] for episode in group.episodes]

    episodes, task = [], made.Task(id="t", columns={"label": 7})
    for sample in range(6):
        rows = [
            made.rollout(task, decisions=made.finished([0.0], [0], side=8).decisions, sample=sample) for _ in range(5)
        ]
        episodes.append(Episode(rows=tuple(replace(row, row=place) for place, row in enumerate(rows))))
    for episode in episodes[:2]:  # in two streams only the first block is a seven; all else is noise
        episode.rows[0].decisions.state_NXD[0, -1] = digits()[0][digits()[1] == 7][0].view(1, 8, 8)
    group = Group(index=0, task=task, episodes=tuple(episodes))
    spoilt, others = out(Unspoilt()(group)), out(stream_pairs.AsMany()(group))
    assert sum(map(sum, others)) == sum(map(sum, spoilt)) > 0 and others != spoilt
    assert not any(row[0] for row in others) and out(stream_pairs.AsMany()(group)) == others


def test_blocks_agree_where_their_neighbours_vote_alike():
    data_KD, label_K = (rows[1::2] for rows in stream_pairs.digits())
    one, other = (data_KD[label_K == digit] for digit in (4, 7))
    x_NBD = torch.stack([torch.stack([one[0], one[1], other[0], one[2]]), one[3:7]])
    assert stream_pairs.agreement(x_NBD) == pytest.approx((3 / 6 + 1) / 2)


def test_the_weights_or_the_past_are_all_that_differs():
    runs = {arm: stream_scores.run_of(arm, 3e-4, 1) for arm in stream_scores.TUNED.arms}
    plain = runs[stream_scores.PLAIN]
    assert plain.update.weighted is None and plain.workflow.past is None
    for arm in (stream_scores.ROLLOUTS, stream_scores.BOTH):
        assert replace(runs[arm], update=replace(runs[arm].update, weighted=None)) == plain
    real = runs[stream_scores.REAL]
    assert replace(real, workflow=plain.workflow) == plain and real.workflow.past == RealSamples()
    assert [runs[arm].update.weighted.saliency for arm in (stream_scores.ROLLOUTS, stream_scores.BOTH)] == [False, True]
    assert plain.update.optimization.critic_learning_rate == 3e-4
    assert plain.prompts_per_step * plain.num_generations == 16 and plain.sampling.max_length == 2


def test_the_forecast_is_all_that_differs():
    critic, scores = (forecasts.run_of(arm, 1e-4, 3) for arm in (forecasts.CRITIC, forecasts.SCORES))
    assert critic == replace(scores, update=replace(scores.update, warm_up=4))
    assert scores.update.warm_up == forecasts.STEPS, "it never ends"
    assert critic.update.coef == 0.1 and critic.update.optimization.critic_learning_rate == 3e-3


def test_the_past_or_the_contrast_is_all_that_differs():
    own, real, blind = (forcing.run_of(arm, 1e-4, 2) for arm in forcing.TUNED.arms)
    assert own == replace(real, workflow=replace(real.workflow, past=None)) and real.workflow.past == RealSamples()
    assert own == replace(blind, update=replace(blind.update, contrast=1.0)) and blind.update.contrast == 0
    rates = own.update.optimization
    assert (rates.learning_rate, rates.critic_learning_rate, own.sampling.max_length) == (1e-4, 1e-3, 4)
    assert own.prompts_per_step * own.num_generations == 32 and own.workflow.blocks == 6


def test_the_own_next_step_is_all_that_differs():
    scores, both = (self_distilled.run_of(arm, 3e-4, 2) for arm in self_distilled.TUNED.arms)
    assert both.update.adversarial == AdversarialLoss(real=None, coef=0.03)
    assert replace(both, update=replace(both.update, adversarial=None)) == scores and scores.sampling.max_length == 3


def test_a_search_costs_as_many_evaluations_as_the_streams_that_are_chosen_among():
    found = {arm: searched.workflow_of(arm) for arm in searched.ARMS}
    assert found[searched.ONE][0] == found[searched.WHOLE][0] and found[searched.WHOLE][1] == 2
    blocks, handed = found[searched.BLOCKS][0], found[searched.HANDED][0]
    assert (blocks.candidates, blocks.beam, blocks.carried, handed.carried) == (2, 1, 0.0, 0.25)
    assert replace(handed, carried=0.0) == blocks and blocks.blocks == found[searched.WHOLE][0].blocks == 12


def test_the_verdict_on_a_search_follows_its_rule():
    rows = [(searched.WHOLE, 0.8, -0.5), (searched.BLOCKS, 0.9, -0.2), (searched.HANDED, 0.9, -0.3)]
    runs = [
        {
            **dict.fromkeys(searched.FIGURES, 0.0),
            "arm": arm,
            "seed": seed,
            "held": held,
            "reward": reward + 0.001 * seed,
        }
        for arm, held, reward in rows
        for seed in searched.SEEDS
    ]
    chosen, handed = searched.section(runs).strip().splitlines()[-2:]
    assert chosen.endswith("| yes |") and handed.endswith("| no: below |")
    assert searched.section(runs[1:]).strip().splitlines()[-2].endswith("| seeds are missing |")
