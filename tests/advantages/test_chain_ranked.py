"""Chains of dominance: by hand, against all subsets, and the limits."""

import itertools
from dataclasses import replace

import pytest
import torch

from gimbal import ops
from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.ops.chains import longest_chain
from gimbal.records import TrainBatch


def batch(scores, group=None):
    score_NK = torch.tensor(scores, dtype=torch.float64)
    n = len(score_NK)
    g = torch.Generator().manual_seed(0)
    return TrainBatch(
        mask_NS=torch.arange(3) < torch.tensor([3, 2, 3, 1, 3, 2])[:n, None],
        proximal_NS=-torch.rand(n, 3, generator=g, dtype=torch.float64),
        group_N=torch.zeros(n, dtype=torch.long) if group is None else torch.tensor(group),
        facts={f"score/{name}": score_NK[:, k] for k, name in enumerate("abc"[: score_NK.shape[1]])},
    )


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=0)


def longest_by_brute_force(value_GK):
    rows = value_GK.tolist()

    def alike(i, j):
        pairs = list(zip(rows[i], rows[j], strict=True))
        return all(a >= b for a, b in pairs) or all(a <= b for a, b in pairs)

    subsets = (s for k in range(len(rows), 0, -1) for s in itertools.combinations(range(len(rows)), k))
    return next(len(s) for s in subsets if all(alike(i, j) for i, j in itertools.combinations(s, 2)))


def test_by_hand():
    b = batch([[0, 0], [1, 0], [1, 2], [0, 3], [1, 0], [5, -1]])
    assert longest_chain(torch.stack([b.facts["score/a"], b.facts["score/b"]], -1)).tolist() == [0, 1, 2, -1, 1, -1]
    rank = torch.tensor([0.0, 1, 2, 1])
    value = (rank - 1) / (rank.std() + 1e-6)
    close(ChainRanked()(b)[:, 0], [value[0], value[1], value[2], 0, value[3], 0])
    assert ChainRanked().report(b) == {"chain_frac": pytest.approx(4 / 6)}
    assert (ChainRanked()(b)[~b.mask_NS] == 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_no_subset_is_a_longer_chain(seed):
    g = torch.Generator().manual_seed(seed)
    value_GK = torch.randint(0, 4, (7, 2 + seed % 2), generator=g).double()
    rank_G = longest_chain(value_GK)
    on = value_GK[rank_G >= 0]
    assert len(on) == longest_by_brute_force(value_GK) == longest_by_brute_force(on)
    order_G = rank_G[rank_G >= 0].argsort(stable=True)
    assert (on[order_G].diff(dim=0) >= 0).all()
    shuffled = torch.randperm(7, generator=g)
    assert torch.equal(longest_chain(value_GK[shuffled]), rank_G[shuffled])


def test_reduces_to_grpo_on_ranks_with_one_reward():
    b = batch([[0.3], [7.0], [0.3], [-1.0], [100.0], [7.0]])
    ranks = torch.tensor([1.0, 2, 1, 0, 3, 2], dtype=torch.float64)
    host = replace(b, reward_NS=ranks[:, None] * (torch.arange(3) == 0))
    results = []
    for advantage_NS in (ChainRanked()(b), GroupNormalized()(host)):
        x = (b.proximal_NS + 0.1).requires_grad_()
        loss_NS = ClippedRatio()(x, replace(b, advantage_NS=advantage_NS.double())).loss_NS
        loss = (loss_NS * ops.SequenceMean()(b.mask_NS)).sum()
        results.append((advantage_NS.double(), loss_NS.detach(), torch.autograd.grad(loss, x)[0]))
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)


def test_no_update_where_no_two_are_comparable():
    b = batch([[0, 3], [1, 2], [2, 1], [3, 0]])
    assert (ChainRanked()(b) == 0).all() and ChainRanked().report(b)["chain_frac"] == 0.25


def test_scales_and_weights_do_not_matter():
    scores = torch.tensor([[0.0, 0], [1, 1], [2, 1], [1, 3]])
    close(
        ChainRanked()(batch(scores.tolist())), ChainRanked()(batch((scores * torch.tensor([1e-3, 1e4]) - 5).tolist()))
    )


def test_groups_and_names_are_kept_apart():
    b = batch([[0, 1], [1, 0], [0, 0], [1, 1]], group=[4, 4, 2, 2])
    half = 0.5 / (0.5**0.5 + 1e-6)
    close(ChainRanked()(b)[:, 0], [0, 0, -half, half])
    close(ChainRanked(rewards=("a",))(b)[:, 0], [-half, half, -half, half])
    assert (ChainRanked()(replace(b, group_N=torch.arange(4))) == 0).all()
    assert (ChainRanked()(batch([[1, 2]] * 4)) == 0).all()
    with pytest.raises(ValueError, match="reads the rewards"):
        ChainRanked(rewards=("z",))(b)
