"""Our advantages, rewards and aggregations against verl's own functions, on random batches (`make test-peers`).

Where the two differ on purpose, a test says by what: docs/notation.md has the list.
"""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not here: make test-peers installs it")
sys.path.insert(0, str(Path(__file__).parent))

from verl.trainer.config import AlgoConfig
from verl_batches import SEEDS, case

from gimbal import ops
from gimbal.advantages import (
    GAE,
    GroupCentered,
    GroupNormalized,
    KLReward,
    LeaveOneOut,
    ReturnToGo,
    RewardDecoupled,
    Whitened,
)
from gimbal.controllers import AdaptiveKL

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def same(ours, theirs, mask, **more):
    torch.testing.assert_close(ours * mask, theirs * mask, **(TIGHT | more))


def bessel(batch):
    """Whitened divides by the deviation of the decisions at hand (ddof 0), verl by that of those they were drawn from (ddof 1)."""
    count = int(batch.mask_NS.sum())
    return math.sqrt((count - 1) / count)


def whitened(batch, advantage_NS):
    return Whitened()(replace(batch, advantage_NS=advantage_NS)) * bessel(batch)


@pytest.mark.parametrize(
    ("estimator", "theirs", "options"),
    [
        (GroupNormalized(ddof=1, eps=1e-6), "compute_grpo_outcome_advantage", {}),
        (GroupNormalized(ddof=1, eps=1e-6), "compute_grpo_vectorized_outcome_advantage", {}),
        (GroupCentered(), "compute_grpo_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
        (GroupCentered(), "compute_grpo_vectorized_outcome_advantage", {"norm_adv_by_std_in_grpo": False}),
        (LeaveOneOut(), "compute_rloo_outcome_advantage", {}),
        (LeaveOneOut(), "compute_rloo_vectorized_outcome_advantage", {}),
    ],
)
def test_outcomes_of_groups(estimator, theirs, options):
    for seed in SEEDS:
        c = case(seed)
        expected, _ = vars(algos)[theirs](c.batch.reward_NS.clone(), c.mask, c.index, **options)
        same(estimator(c.batch), expected, c.mask, atol=1e-5, rtol=1e-5)  # the vectorised ones count in float32


def test_a_group_of_one_is_0_here_and_its_score_there():
    """verl's lists give a lone rollout its score as advantage, its vectorised RLOO 0. Ours are 0: there is nothing to compare with."""
    for seed in SEEDS:
        c = case(seed, lone=True)
        lone_N = torch.bincount(c.batch.group_N)[c.batch.group_N] == 1
        score = c.batch.return_N[:, None] * c.mask
        for estimator, theirs in (
            (GroupNormalized(ddof=1, eps=0.0), "compute_grpo_outcome_advantage"),
            (LeaveOneOut(), "compute_rloo_outcome_advantage"),
        ):
            expected, _ = vars(algos)[theirs](c.batch.reward_NS.clone(), c.mask, c.index)
            assert (estimator(c.batch)[lone_N] == 0).all()
            same(expected[lone_N], score[lone_N], c.mask[lone_N], atol=1e-5)
            same(estimator(c.batch)[~lone_N], expected[~lone_N], c.mask[~lone_N], rtol=1e-4, atol=1e-4)
        vectorised, _ = algos.compute_rloo_vectorized_outcome_advantage(c.batch.reward_NS, c.mask, c.index)
        same(LeaveOneOut()(c.batch), vectorised, c.mask)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.9, 0.0), (1.0, 0.5)])
def test_generalised_advantages_over_gaps(gamma, lam):
    for seed in SEEDS:
        c = case(seed)
        advantage, returns = algos.compute_gae_advantage_return(c.reward_NS, c.value_NS, c.mask, gamma, lam)
        batch = replace(
            c.batch,
            reward_NS=c.reward_NS,
            value_NS=c.value_NS,
            bootstrap_N=torch.zeros(len(c.mask), dtype=torch.float64),
        )
        ours = GAE(gamma=gamma, lam=lam)(batch)
        same(ours + c.value_NS, returns, c.mask)
        same(whitened(batch, ours), advantage, c.mask, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.97, 0.5])
def test_returns_to_go_of_several_turns(gamma):
    for seed in SEEDS:
        c = case(seed)
        config = AlgoConfig(gamma=gamma)
        advantage, returns = algos.compute_reinforce_plus_plus_outcome_advantage(c.reward_NS, c.mask, config)
        batch = replace(c.batch, reward_NS=c.reward_NS)
        ours = ReturnToGo(gamma=gamma)(batch)
        same(ours, returns, c.mask)
        same(whitened(batch, ours), advantage, c.mask, atol=1e-6, rtol=1e-6)


def test_what_a_tool_is_paid_is_lost_on_both_sides():
    """A reward on what does not count vanishes without a word in verl, and here; ``pack`` puts scores on decisions that count."""
    c = case(3)
    paid = c.reward_NS + 5.0 * (1 - c.mask)
    _, returns = algos.compute_reinforce_plus_plus_outcome_advantage(paid, c.mask, AlgoConfig(gamma=0.9))
    same(ReturnToGo(gamma=0.9)(replace(c.batch, reward_NS=paid)), returns, c.mask)
    assert not torch.equal(paid, c.reward_NS)


def test_reinforce_with_a_baseline():
    for seed in SEEDS:
        c = case(seed)
        expected, _ = algos.compute_reinforce_plus_plus_baseline_outcome_advantage(
            c.batch.reward_NS.clone(), c.mask, c.index
        )
        same(whitened(c.batch, GroupCentered()(c.batch)), expected, c.mask, atol=1e-6, rtol=1e-6)


def test_rewards_normalised_apart():
    """verl whitens over decisions, so that long rollouts weigh more; ours over rollouts, unless Whitened does it."""
    for seed in SEEDS:
        c = case(seed, gaps=False)
        g = torch.Generator().manual_seed(seed)
        scores = {name: torch.rand(len(c.mask), generator=g).double() for name in ("right", "short")}
        config = AlgoConfig(gdpo_reward_keys=list(scores), gdpo_reward_weights=[1.0, 0.5])
        batch = replace(c.batch, facts={f"score/{name}": score_N for name, score_N in scores.items()})
        given = {
            "prompts": torch.zeros(len(c.mask), 2),
            "attention_mask": torch.cat([torch.ones(len(c.mask), 2), c.mask], 1).long(),
        }
        named = {name: score_N.numpy() for name, score_N in scores.items()}
        expected, _ = algos.compute_gdpo_outcome_advantage(
            c.batch.reward_NS, c.mask, c.index, epsilon=1e-6, config=config, non_tensor_batch=named, batch=given
        )
        ours = RewardDecoupled(rewards=("right", "short"), weights=(1.0, 0.5), whiten="off", eps=1e-6)(batch)
        same(whitened(batch, ours.double()), expected.double(), c.mask, atol=1e-4, rtol=1e-4)


def test_the_kl_in_the_reward():
    for seed in SEEDS:
        c = case(seed)
        proximal, reference = c.batch.proximal_NS, c.batch.reference_NS
        expected = algos.compute_rewards(c.reward_NS, proximal, reference, 0.07)
        same(KLReward(coef=0.07)(replace(c.batch, reward_NS=c.reward_NS)), expected, c.mask)


@pytest.mark.parametrize(
    ("ours", "mode", "more"),
    [
        (ops.TokenMean(), "token-mean", {}),
        (ops.SequenceSum(), "seq-mean-token-sum", {}),
        (ops.SequenceMean(), "seq-mean-token-mean", {}),
        (ops.ConstantMean(length=64.0), "seq-mean-token-sum-norm", {"loss_scale_factor": 64}),
        (ops.ConstantMean(length=9.0), "seq-mean-token-sum-norm", {}),  # theirs by default: the width of the batch
    ],
)
def test_aggregations_whole_and_in_parts(ours, mode, more):
    """Of one batch, and of the same split in two, which verl is told the whole batch's counts for; rows without decisions too."""
    for seed in SEEDS:
        c = case(seed, empty=seed % 3 == 0)
        loss_NS, weight_NS = c.column("advantage_NS"), ours(c.batch.mask_NS)
        expected = algos.agg_loss(loss_NS, c.mask, mode, **more)
        torch.testing.assert_close((weight_NS * loss_NS).sum(), expected, rtol=1e-6, atol=1e-7)
        counts = {"batch_num_tokens": c.mask.sum(), "global_batch_size": c.mask.any(-1).sum()}
        half = len(c.mask) // 2
        for rows in (slice(0, half), slice(half, None)):
            part = algos.agg_loss(loss_NS[rows], c.mask[rows], mode, **counts, **more)
            torch.testing.assert_close((weight_NS * loss_NS)[rows].sum(), part, rtol=1e-6, atol=1e-7)


def test_a_batch_of_which_nothing_counts_is_0_here_and_no_number_there():
    nothing = torch.zeros(2, 3)
    assert algos.agg_loss(torch.ones(2, 3), nothing, "token-mean").isnan()
    assert (ops.TokenMean()(nothing.bool()) == 0).all()


def test_the_coefficient_that_holds_a_kl():
    for seed in SEEDS:
        draw = np.random.default_rng(seed)
        theirs = algos.AdaptiveKLController(init_kl_coef=0.1, target_kl=0.02, horizon=1000)
        ours = AdaptiveKL(signal="kl", target=0.02, gain=64 / 1000, initial=0.1)
        state = ours.init()
        for kl in draw.uniform(0, 0.05, 20):
            theirs.update(kl, 64)
            state = ours.update(state, {"kl": float(kl)})
            assert state["value"] == pytest.approx(theirs.value, rel=1e-12)
