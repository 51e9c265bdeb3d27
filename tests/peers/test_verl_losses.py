"""Our objectives, masks and corrections against verl's losses, value and gradient, on random batches (`make test-peers`)."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not here: make test-peers installs it")
sys.path.insert(0, str(Path(__file__).parent))

from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights, compute_rollout_rejection_mask
from verl.utils import torch_functional
from verl.workers.config import ActorConfig
from verl.workers.config.actor import PolicyLossConfig
from verl_batches import SEEDS, case

from gimbal import ops
from gimbal.objectives import (
    ClippedRatio,
    ClippedWeight,
    CovarianceKL,
    CovarianceMask,
    KLPenalty,
    MaskedWeight,
    Reinforce,
    SequenceRatio,
    TruncatedWeight,
    ValueLoss,
)
from gimbal.policies.logits import picked

LOW, HIGH = 0.2, 0.28
MODES = {
    "token-mean": ops.TokenMean(),
    "seq-mean-token-sum": ops.SequenceSum(),
    "seq-mean-token-mean": ops.SequenceMean(),
}


def config(**policy_loss):
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=LOW,
        clip_ratio_low=LOW,
        clip_ratio_high=HIGH,
        policy_loss=PolicyLossConfig(**policy_loss),
    )


def descended(loss_of, logprob_NS):
    """(value, gradient) of a loss as a function of log-probabilities."""
    live = logprob_NS.clone().requires_grad_()
    loss = loss_of(live)
    loss.backward()
    return loss.detach(), live.grad


def agree(ours, theirs, logprob_NS, **tolerance):
    for mine, their in zip(descended(ours, logprob_NS), descended(theirs, logprob_NS), strict=True):
        torch.testing.assert_close(mine, their, **({"rtol": 1e-6, "atol": 1e-7} | tolerance))


def summed(objective, c, aggregation, weight_NS=None):
    """Our loss as the learner adds it up."""

    def loss(logprob_NS):
        loss_NS = objective(logprob_NS, c.batch).loss_NS
        return (aggregation(c.batch.mask_NS) * loss_NS * (1 if weight_NS is None else weight_NS)).sum()

    return loss


def theirs(function, c, mode, weight_NS=None, **policy_loss):
    def loss(logprob_NS):
        given = {} if weight_NS is None else {"rollout_is_weights": weight_NS}
        advantage_NS, proximal_NS = c.batch.advantage_NS, c.batch.proximal_NS
        return function(proximal_NS, logprob_NS, advantage_NS, c.mask, mode, config(**policy_loss), **given)[0]

    return loss


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("objective", "name"),
    [
        (ClippedRatio(clip_low=LOW, clip_high=HIGH, dual_clip=3.0), "vanilla"),
        (ClippedWeight(clip_low=LOW, clip_high=HIGH), "cispo"),
        (SequenceRatio(clip_low=LOW, clip_high=HIGH), "gspo"),
        (Reinforce(), "gpg"),
    ],
)
def test_surrogates(objective, name, mode):
    for seed in SEEDS:
        c = case(seed, apart=0.3 + seed % 4)  # far enough for every clip
        weight_NS = TruncatedWeight()(c.batch) if seed % 2 else None
        ours = summed(objective, c, MODES[mode], weight_NS)
        agree(ours, theirs(algos.get_policy_loss_fn(name), c, mode, weight_NS), c.logprob_NS)


@pytest.mark.parametrize("coef", [0.1, 1.0])
def test_the_decisions_that_a_covariance_holds(coef):
    """Their term is |log r|, whose gradient at 0 is 0 on both sides; as many are held, by the same covariance."""
    for seed in SEEDS:
        c = case(seed)
        for share in (0.05, 0.5, 1.0):
            function = algos.get_policy_loss_fn("kl_cov")
            their_loss = theirs(function, c, "token-mean", kl_cov_ratio=share, ppo_kl_coef=coef)
            agree(summed(CovarianceKL(share=share, coef=coef), c, ops.TokenMean()), their_loss, c.logprob_NS)


def test_the_decisions_that_a_covariance_leaves_out():
    """Of a whole band, for which of its decisions are left out is a lot on both sides."""
    for seed in SEEDS:
        c = case(seed)
        mask = CovarianceMask(share=1.0, low=0.1, high=2.0, clip_low=LOW, clip_high=HIGH)
        kept_NS = mask(c.batch)
        assert seed % 2 or not torch.equal(kept_NS, c.batch.mask_NS)
        ours = summed(ClippedRatio(clip_low=LOW, clip_high=HIGH), c, ops.TokenMean(), kept_NS)
        function = algos.get_policy_loss_fn("clip_cov")
        bounds = {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.1, "clip_cov_ub": 2.0}
        agree(ours, theirs(function, c, "token-mean", **bounds), c.logprob_NS)


def test_reinforce_weighted_for_the_sampler():
    """Their bypass: the weight is the policy's of now over the sampler's, which ours is where the anchor is the policy itself."""
    for seed in SEEDS:
        c = case(seed)
        c = replace(c, batch=replace(c.batch, proximal_NS=c.logprob_NS))
        correction = {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": 2.0}

        def bypass(logprob_NS, c=c, correction=correction):
            loss = algos.compute_policy_loss_bypass_mode
            given = config(rollout_correction=correction)
            return loss(c.batch.behavior_NS, logprob_NS, c.batch.advantage_NS, c.mask, "seq-mean-token-sum", given)[0]

        weight_NS = TruncatedWeight(cap=2.0)(c.batch)
        agree(summed(Reinforce(), c, ops.SequenceSum(), weight_NS), bypass, c.logprob_NS)


@pytest.mark.parametrize("clip", [0.2, 0.5, 1e9])
def test_the_critics_loss(clip):
    for seed in SEEDS:
        c = case(seed)
        target_NS = c.value_NS + c.reward_NS
        for mode, aggregation in MODES.items():

            def ours(value_NS, c=c, target_NS=target_NS, aggregation=aggregation):
                columns = {"new_value_NS": value_NS, "value_NS": c.value_NS, "target_NS": target_NS}
                loss_NS = ValueLoss(coef=1.0, clip=clip)(c.logprob_NS, c.batch.evaluated(columns)).loss_NS
                return (aggregation(c.batch.mask_NS) * loss_NS).sum()

            def their(value_NS, c=c, target_NS=target_NS, mode=mode):
                return algos.compute_value_loss(value_NS, target_NS, c.value_NS, c.mask, clip, mode)[0]

            agree(ours, their, c.value_NS + c.column("advantage_NS"))


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_estimators_of_a_divergence(name):
    for seed in SEEDS:
        c = case(seed, apart=0.5)  # below where theirs is cut

        def their(logprob_NS, c=c):
            penalty_NS = algos.kl_penalty(logprob_NS, c.batch.reference_NS, name)
            return algos.agg_loss(0.04 * penalty_NS, c.mask, "token-mean")

        agree(summed(KLPenalty(coef=0.04, estimator=name), c, ops.TokenMean()), their, c.logprob_NS)


def test_k3_is_cut_at_10_there_and_not_here():
    """Both bound the log-ratio at 20. verl also cuts k3 at 10, where its gradient ends: 2.5 nats below the reference."""
    new, old = torch.tensor([[-6.0, -1.0]]), torch.tensor([[-3.0, -1.0]])
    assert algos.kl_penalty(new, old, "k3").tolist() == [[10.0, 0.0]]
    assert ops.k3(new, old)[0, 0] == pytest.approx(math.exp(3) - 4, rel=1e-6)


def test_k3_with_the_gradient_of_k2():
    """Their k3+ shows k3 and descends k2; ours descends k2 by name and shows k3 as ``kl/ref``."""
    for seed in SEEDS:
        c = case(seed)

        def their(logprob_NS, c=c):
            return algos.agg_loss(algos.kl_penalty(logprob_NS, c.batch.reference_NS, "k3+"), c.mask, "token-mean")

        objective = KLPenalty(coef=1.0, estimator="k2")
        value, gradient = descended(their, c.logprob_NS)
        torch.testing.assert_close(descended(summed(objective, c, ops.TokenMean()), c.logprob_NS)[1], gradient)
        shown_NS = objective(c.logprob_NS, c.batch).metrics["kl/ref"]
        torch.testing.assert_close(ops.masked_mean(shown_NS, c.batch.mask_NS), value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("ours", "level", "threshold", "normalise"),
    [
        (TruncatedWeight(cap=2.0), "token", 2.0, False),
        (TruncatedWeight(cap=5.0, level="sequence"), "sequence", 5.0, False),
        (TruncatedWeight(cap=2.0, normalise=True), "token", 2.0, True),
        (MaskedWeight(low=0.5, high=2.0), "token", "0.5_2.0", False),
        (MaskedWeight(low=0.25, high=4.0, level="sequence"), "sequence", "0.25_4.0", False),
    ],
)
def test_weights_for_the_sampler(ours, level, threshold, normalise):
    for seed in SEEDS:
        c = case(seed, apart=0.6)
        log_NS = c.column("proximal_NS") - c.column("behavior_NS")
        expected, _ = compute_rollout_correction_weights(log_NS, c.mask, level, threshold, normalise)
        torch.testing.assert_close(ours(c.batch) * c.mask, expected * c.mask, rtol=1e-6, atol=1e-7)


def test_weights_of_sequences_are_brought_to_a_mean_of_one_by_decisions_here_and_by_sequences_there():
    differed = 0
    for seed in SEEDS:
        c = case(seed, apart=0.6)
        log_NS = c.column("proximal_NS") - c.column("behavior_NS")
        expected, _ = compute_rollout_correction_weights(log_NS, c.mask, "sequence", 5.0, True)
        ours = TruncatedWeight(cap=5.0, level="sequence", normalise=True)(c.batch)
        assert float(ops.masked_mean(ours, c.batch.mask_NS)) == pytest.approx(1)
        factor = ours[c.batch.mask_NS] / expected[c.batch.mask_NS]
        assert float(factor.max() - factor.min()) < 1e-5, "one number for all"
        differed += abs(float(factor[0]) - 1) > 1e-3
    assert differed > len(SEEDS) / 2


@pytest.mark.parametrize(
    ("level", "mode"), [("token", "token_k1"), ("geometric", "seq_mean_k1"), ("sequence", "seq_sum_k1")]
)
def test_what_is_rejected(level, mode):
    """Their bounds are of the sampler's probability over the trainer's, ours of the inverse."""
    for seed in SEEDS:
        c = case(seed, apart=0.4)
        log_NS = c.column("proximal_NS") - c.column("behavior_NS")
        kept, _ = compute_rollout_rejection_mask(log_NS, c.mask, mode, "0.8_1.25")
        ours = MaskedWeight(low=1 / 1.25, high=1 / 0.8, level=level, weigh=False)
        assert torch.equal((ours(c.batch) * c.mask).bool(), kept.bool())


def test_log_probabilities_and_entropy_of_logits():
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        hidden, weight = torch.randn(30, 8, generator=g), torch.randn(50, 8, generator=g)
        head = torch.nn.Linear(8, 50, bias=False)
        head.weight = torch.nn.Parameter(weight)
        ids = torch.randint(0, 50, (30,), generator=g)
        logprob_K, entropy_K = picked(head, hidden, ids, 0.7, ["entropy_NS"])
        logits = hidden @ weight.T / 0.7
        torch.testing.assert_close(
            logprob_K, torch_functional.logprobs_from_logits_naive(logits, ids), rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(entropy_K, torch_functional.entropy_from_logits(logits), rtol=1e-4, atol=1e-4)
