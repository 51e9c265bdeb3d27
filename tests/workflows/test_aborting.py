"""Who is given up, what is left and how likely that was: weighted by that, what is left has the policy's own distribution."""

import itertools
import math
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("engines", "runtime")]
from small import small_run
from test_native import ids, policy, request

from gimbal.advantages import GroupNormalized
from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.engines.base import drained
from gimbal.engines.native import Native
from gimbal.records import Drop, TrainBatch
from gimbal.runtime import compose
from gimbal.runtime.run import HeldOut
from gimbal.workflows.aborting import Aborting
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

PROMPT, HEAT, LENGTH = "hello", 4.0, 4
CHANCE = 0.4


@pytest.fixture(scope="module")
def made():
    return policy()


def outcomes(made, workflow, count, slots=256):
    live = Driven(engine=Native(slots=slots, precision="float32"), workflow=workflow).start(made)
    live.load(0, made.state_dict())
    for sample in range(count):
        live.submit(request(PROMPT, sample=sample, max_length=LENGTH, temperature=HEAT))
    return {key[1]: item.outcome for key, item in drained(live).items()}


@torch.no_grad()
def paths(made):
    """Every rollout there can be, with its probability."""
    start, found = made.tokenizer.encode(PROMPT), {}
    rows = [((), 0.0)]
    while rows:
        tokens = torch.tensor([[*start, *own] for own, _ in rows])
        logprob = made.model(tokens).logits[:, -1].double().div(HEAT).log_softmax(-1)
        further = []
        for (own, before), each in zip(rows, logprob.tolist(), strict=True):
            for token, value in enumerate(each):
                path = ((*own, token), before + value)
                if token in made.end_ids or len(path[0]) == 2:
                    found[path[0]] = path[1]
                else:
                    further.append(path)
        rows = further
    return found


def test_at_no_chance_it_is_the_engine_itself(made):
    plain, ours = outcomes(made, SingleTurn(), 12), outcomes(made, Aborting(marker="o", chance=0.0, every=1), 12)
    assert all(ids(ours[s].last) == ids(plain[s].last) and ours[s].last.inclusion == 1 for s in plain)
    for s in plain:  # another batch of rows rounds otherwise
        torch.testing.assert_close(ours[s].last.behavior_S, plain[s].last.behavior_S, atol=1e-4, rtol=0)
    never = outcomes(made, Aborting(marker="oqzj", chance=0.9), 12)
    assert all(ids(never[s].last) == ids(plain[s].last) for s in plain)


@pytest.mark.slow
def test_weighted_by_inclusion_what_is_left_is_the_policys(made):
    """By enumeration of the first two letters: survivors of each have p s of all, and their weights add up to p."""
    count = 700
    workflow = Aborting(marker="o", chance=CHANCE, every=1)
    found = outcomes(made, workflow, count)
    marker = made.tokenizer.encode("o")[0]
    plain = outcomes(made, SingleTurn(), count)
    counts, sums, given_up = Counter(), Counter(), 0
    for sample, outcome in found.items():
        whole = ids(plain[sample].last)
        places = whole.index(marker) + 1 if marker in whole else len(whole)
        if isinstance(outcome, Drop):
            given_up += 1
            assert outcome.reason == "aborted" and marker in whole and places <= outcome.drawn < len(whole)
            continue
        assert ids(outcome.last) == whole, "what is left is as it would have been"
        # A checkpoint where the marker stands, and one after each further token, but for the end of the row.
        assert outcome.last.inclusion == pytest.approx((1 - CHANCE) ** (len(whole) - places))
        head = tuple(whole[:2])
        counts[head] += 1
        sums[head] += 1 / outcome.last.inclusion
    assert count / 20 < given_up < count / 2
    exact = {head: torch.tensor(logprob).exp().item() for head, logprob in paths(made).items()}
    assert sum(exact.values()) == pytest.approx(1)
    big = [head for head, p in exact.items() if p * count >= 10]
    assert len(big) >= 5
    # Horvitz-Thompson: unbiased, with a variance of at most p (1 / s - p) a rollout, where s >= (1 - chance)^3.
    worst = (1 - CHANCE) ** 3
    for head in big:
        p = exact[head]
        deviation = (count * p * (1 / worst - p)) ** 0.5
        assert abs(sums[head] - count * p) < 4 * deviation, head
    # Unweighted they are not: those with the marker first are too few by far.
    first = {head for head in exact if head[0] == marker}
    share = sum(exact[head] for head in first)
    left = sum(counts[head] for head in first) / counts.total()
    assert share > 0.05 and left < 0.75 * share
    weighted = sum(sums[head] for head in first) / sums.total()
    assert weighted == pytest.approx(share, abs=4 * (share / worst / count) ** 0.5)


def batch(reward_N, inclusion_N, group_N=None):
    n = len(reward_N)
    return TrainBatch(
        mask_NS=torch.ones(n, 1, dtype=torch.bool),
        reward_NS=torch.tensor(reward_N)[:, None],
        group_N=torch.zeros(n, dtype=torch.long) if group_N is None else torch.tensor(group_N),
        facts={"inclusion": torch.tensor(inclusion_N)},
    )


def test_equal_inclusions_are_group_normalised_and_one_that_stands_for_two_counts_twice():
    reward_N = [1.0, 0.0, 0.0, 1.0, 0.5]
    for equal in (1.0, 0.3):
        whole = batch(reward_N, [equal] * 5)
        torch.testing.assert_close(InclusionNormalized()(whole), GroupNormalized()(whole), atol=1e-5, rtol=1e-5)
    halves = InclusionNormalized(ddof=0, eps=0.0)(batch([1.0, 0.0, 0.0], [0.5, 1.0, 1.0]))
    twice = GroupNormalized(ddof=0, eps=0.0)(batch([1.0, 1.0, 0.0, 0.0], [1.0] * 4))
    # Of sums with equal denominators: 3 rollouts against 4.
    assert halves[:, 0].tolist() == pytest.approx([2 * 0.75 * float(twice[0]), *(0.75 * twice[2:, 0]).tolist()])
    assert float(halves.sum()) == pytest.approx(0, abs=1e-6)
    assert InclusionNormalized()(batch([0.3, 0.3, 0.3], [0.1, 0.7, 1.0])).abs().max() == 0
    capped = InclusionNormalized(most=1.0)(batch(reward_N, [0.1, 1.0, 0.5, 0.2, 1.0]))
    torch.testing.assert_close(capped, GroupNormalized()(batch(reward_N, [1.0] * 5)), atol=1e-5, rtol=1e-5)


def test_a_group_that_is_thinned_counts_as_if_it_were_whole():
    """Two groups of equal rewards, one of which loses half of its rollouts, over all ways to lose them: sums of A (R - mean R)."""
    reward = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    gap = [r - sum(reward) / len(reward) for r in reward]
    for least, most in ((0.5, 0.5), (0.3, 0.7)):  # alike, or by the reward: wrong rollouts go more often
        inclusion = [most if r else least for r in reward]
        whole = thinned = 0.0
        for kept in itertools.product([True, False], repeat=len(reward)):
            left = [i for i, keep in enumerate(kept) if keep]
            p = math.prod(s if keep else 1 - s for keep, s in zip(kept, inclusion, strict=True))
            rewards, chances = reward + [reward[i] for i in left], [1.0] * len(reward) + [inclusion[i] for i in left]
            both = batch(rewards, chances, [0] * len(reward) + [1] * len(left))
            advantage = InclusionNormalized(ddof=0)(both)[:, 0].tolist()
            whole += p * sum(a * g for a, g in zip(advantage, gap, strict=False))
            thinned += p * sum(a * gap[i] for a, i in zip(advantage[len(reward) :], left, strict=True))
        # The own mean of five takes a fifth of what ten would show. Divided by the weights of what is left, it would be under a half.
        assert 0.75 < thinned / whole < 1.0


def test_a_run_that_does_not_weigh_is_refused():
    with pytest.raises(ValueError, match=r"advantage=InclusionNormalized\(\)"):
        compose.check(small_run(workflow=Aborting(), held_out=None))
    run = small_run(workflow=Aborting(), advantage=InclusionNormalized(), held_out=HeldOut(tasks=small_run().tasks))
    with pytest.raises(ValueError, match=r"not measure the policy: held_out.workflow='SingleTurn\(\)'"):
        compose.check(run)
    with pytest.raises(ValueError, match="chance 1"):
        Aborting(chance=1.0)
