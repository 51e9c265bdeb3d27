"""Figures of a step, by hand; and that docs/metrics.md explains every one."""

import math
import re
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch
from report_records import batch, group, rollout

from gimbal.engines.native import Native
from gimbal.objectives import EntropyBonus, KLPenalty, TruncatedWeight
from gimbal.policies.token import CausalLM
from gimbal.report.causes import cause_metrics, repeat_metrics, surprise_metrics
from gimbal.report.files import JsonLines
from gimbal.report.metrics import (
    advantage_metrics,
    lags,
    mismatch_metrics,
    order_metrics,
    rollout_metrics,
    staleness_metrics,
    value_metrics,
    weight_metrics,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "runtime"))
from small import rows, small_run

from gimbal.runtime.local import run_local
from gimbal.runtime.run import HeldOut


def test_rollouts():
    groups = [
        group(rollout(1.0, 4, entropy=0.5), rollout(0.0, 8, stop="length", entropy=0.5)),
        group(rollout(0.5, 2, entropy=2.0), rollout(0.5, 2, entropy=2.0), index=1),
    ]
    metrics = rollout_metrics(groups)
    assert metrics["reward/mean"] == 0.5 and metrics["reward/std"] == pytest.approx(math.sqrt(0.125))
    assert metrics["reward/zero_std_frac"] == 0.5
    assert metrics["pass_rate"] == 0.25
    assert (metrics["length/mean"], metrics["length/correct"], metrics["length/wrong"]) == (4.0, 4.0, 4.0)
    assert metrics["length/truncated_frac"] == 0.25
    assert metrics["entropy/mean"] == pytest.approx((12 * 0.5 + 4 * 2.0) / 16)


def test_the_order_of_scores_and_advantages_has_a_sign():
    """1 where advantages are scores less the group's mean, -1 where their sign is turned; nothing where there is no difference."""
    groups = [group(rollout(1.0), rollout(0.0)), group(rollout(5.0), rollout(3.0), index=1)]
    zeros, signal = [[0.0, 0.0]] * 4, torch.tensor([[0.5], [-0.5], [1.0], [-1.0]]).expand(4, 2)

    def order(advantage_NS, groups=groups, mask=None):
        found = batch(zeros, zeros, mask=mask, advantage=advantage_NS.tolist())
        return order_metrics(groups, found).get("advantage/order")

    assert order(signal) == pytest.approx(1) and order(-signal) == pytest.approx(-1)
    assert order(signal + torch.tensor([[7.0], [7.0], [0.0], [0.0]])) == pytest.approx(
        1
    )  # the group's mean is taken away
    assert order(torch.zeros(4, 2)) is None
    assert order(signal, groups=[group(rollout(1.0), rollout(1.0)), group(rollout(1.0), rollout(1.0), index=1)]) is None
    alone = [group(rollout(score), index=place) for place, score in enumerate((1.0, 0.0, 3.0, 2.0))]
    assert order(torch.tensor([[1.0], [0.0], [3.0], [2.0]]).expand(4, 2), groups=alone) == pytest.approx(1)
    masked = [[True, False], [True, False], [False, False], [False, False]]
    assert order(signal * torch.tensor([[1], [1], [-9], [-9]]), mask=masked) == pytest.approx(1)


def test_texts_that_are_empty_are_no_repeats():
    """Episodes have none, and were called one text scored differently."""
    for text, found in (("7", {"reward/repeats": 1.0, "reward/unlike_frac": 1.0}), ("", {})):
        assert repeat_metrics([group(rollout(1.0, text=text), rollout(0.0, text=text))]) == found


def test_a_critic_explains_all_a_constant_nothing_and_a_bad_one_less():
    target_NS = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    known = batch([[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2)
    for value_NS, share in ((target_NS, 1.0), (torch.full((2, 2), 9.0), 0.0), (-target_NS, -3.0)):
        told = value_metrics(replace(known, value_NS=value_NS, target_NS=target_NS))
        assert told["value/explained"] == pytest.approx(share)
    assert value_metrics(known) == {}
    assert value_metrics(replace(known, value_NS=target_NS, target_NS=torch.ones(2, 2))) == {}


@pytest.mark.parametrize("score", [0.1, 0.3, 0.7, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 6, 7, 8])
def test_equal_scores_have_no_deviation_whatever_their_float32(score, size):
    assert rollout_metrics([group(*[rollout(score)] * size)])["reward/zero_std_frac"] == 1.0


def test_named_rewards_are_means_over_the_rollouts_that_have_them():
    one, two = rollout(scores={"exact": 1.0, "format": 0.5}), rollout(scores={"exact": 0.0})
    metrics = rollout_metrics([group(one, two)])
    assert metrics["reward/exact/mean"] == 0.5 and metrics["reward/format/mean"] == 0.5
    assert metrics["reward/format/unscored_frac"] == 0.5 and "reward/exact/unscored_frac" not in metrics


def test_nothing_sampled_has_no_metrics():
    assert rollout_metrics([]) == {}
    assert mismatch_metrics(batch([[-1.0]], [[-1.0]], mask=[[False]]), 0) == {}
    assert staleness_metrics(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool), 0) == {}


def test_no_length_of_the_solved_where_none_is_solved():
    assert "length/correct" not in rollout_metrics([group(rollout(0.0))])


def test_mismatch():
    half, quarter, nan = math.log(0.5), math.log(0.25), float("nan")
    metrics = mismatch_metrics(
        batch([[half, half, nan]], [[half, quarter, 0.0]], mask=[[True, True, False]], version=[[3, 1, 0]]), 3
    )
    assert metrics["mismatch/prob_diff"] == pytest.approx(0.125)
    assert metrics["mismatch/prob_diff/age_0"] == pytest.approx(0.0)
    assert metrics["mismatch/prob_diff/age_above_0"] == pytest.approx(0.25)
    assert metrics["mismatch/logp_diff_max"] == pytest.approx(math.log(2))
    assert metrics["mismatch/k3"] == pytest.approx((0.0 + (0.5 - 1 + math.log(2))) / 2)
    assert metrics["mismatch/outside_frac"] == 0.0  # the ratio 0.5 is the edge, and inside
    assert metrics["mismatch/ess_token"] == pytest.approx(1.5**2 / (2 * 1.25))
    assert metrics["mismatch/ess_sequence"] == 1.0  # of one sequence


def test_k3_estimates_the_kl_of_sampler_to_trainer():
    sampler, trainer = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.5, 0.2, 0.3])
    drawn = torch.tensor([[0] * 7 + [1] * 2 + [2]])  # in the sampler's proportions
    metrics = mismatch_metrics(batch(sampler.log()[drawn].tolist(), trainer.log()[drawn].tolist()), 0)
    kl = float((sampler * (sampler / trainer).log()).sum())
    assert metrics["mismatch/k3"] == pytest.approx(kl, abs=1e-6)


def test_ess_of_sequences_multiplies_their_decisions():
    half, one = math.log(0.5), 0.0
    metrics = mismatch_metrics(batch([[half, half], [half, half]], [[one, one], [half, half]]), 0)
    assert metrics["mismatch/ess_token"] == pytest.approx(6**2 / (4 * 10))
    assert metrics["mismatch/ess_sequence"] == pytest.approx(5**2 / (2 * 17))


def test_what_nothing_sampled_is_no_mismatch():
    """A row that was written, and the guide's decisions at the end of one: far from the policy, and no fault of the sampler."""
    half, far = math.log(0.5), -9.0
    written = batch([[half, half], [0.0, 0.0]], [[half, half], [far, far]])
    guided = replace(batch([[half, half, 0.0]], [[half, half, far]]), facts={"score/guided": torch.tensor([1.0])})
    for found in (written, guided):
        assert mismatch_metrics(found, 0) == mismatch_metrics(batch([[half, half]], [[half, half]]), 0)
        assert cause_metrics(found, 0, at_version=True) == {"cause/discrepancy": 0.0}
    assert (
        mismatch_metrics(batch([[0.0]], [[far]]), 0)
        == {}
        == cause_metrics(batch([[0.0]], [[far]]), 0, at_version=False)
    )
    rows = group(rollout(length=1), replace(rollout(length=1, sample=1), behavior_S=torch.zeros(1)))
    assert surprise_metrics(CausalLM.family, [rows]) == {"entropy/sampled": 1.0}


def test_the_lag_is_of_what_has_just_come_in():
    one = batch([[-1.0] * 3], [[-1.0] * 3], mask=[[True, True, False]])
    fresh = replace(one, version_NS=torch.tensor([[5, 3, 0]]))
    assert lags(fresh, 5) == {"replay/lag": 1.0, "replay/lag_max": 2.0}
    assert lags(replace(fresh, mask_NS=torch.zeros(1, 3, dtype=torch.bool)), 5) == {}


def test_staleness():
    version_NS = torch.tensor([[5] * 18 + [4, 2], [5] * 20])
    mask_NS = torch.tensor([[True] * 20, [False] * 20])
    metrics = staleness_metrics(version_NS, mask_NS, 5)
    assert metrics == {
        "staleness/mean": pytest.approx(0.2),
        "staleness/p95": 1.0,
        "staleness/max": 3.0,
        "staleness/share/0": pytest.approx(0.9),
        "staleness/share/1": pytest.approx(0.05),
        "staleness/share/3": pytest.approx(0.05),
    }


def test_advantages_count_only_under_the_mask():
    metrics = advantage_metrics(batch([[0.0] * 3], [[0.0] * 3], [[True, True, False]], advantage=[[1.0, -3.0, 99.0]]))
    assert metrics == {"advantage/mean": -1.0, "advantage/std": 2.0}


def test_entropy_counts_only_what_the_policy_sampled():
    forced = replace(
        rollout(length=3), entropy_S=torch.tensor([1.0, math.nan, 3.0]), mask_S=torch.tensor([True, False, True])
    )
    assert rollout_metrics([group(forced)])["entropy/mean"] == 2.0


def test_weights():
    metrics = weight_metrics(torch.tensor([[2.0, 0.0, 1.0, 1.0, 99.0]]), torch.tensor([[True] * 4 + [False]]))
    assert metrics == {
        "is_weight/mean": 1.0,
        "is_weight/min": 0.0,
        "is_weight/max": 2.0,
        "is_weight/masked_frac": 0.25,
    }


def patterns() -> list[str]:
    """The keys of the table. ``/x`` stands for the key before it with another last part; <x> and k for anything."""
    found: list[str] = []
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        if line.startswith("| `"):
            for key in re.findall(r"`([^`]+)`", line.split("|")[1]):
                key = re.sub(r"<\w+>|(?<=pass@)k", "*", key)
                found.append(found[-1].rpartition("/")[0] + key if key.startswith("/") else key)
    return found


def unexplained(names) -> list[str]:
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns()))


def test_the_table_has_every_metric_of_a_run(tmp_path):
    run = small_run(
        engine=Native(slots=12, precision="int8", entropy=True),
        regularisers=(KLPenalty(coef=0.01), EntropyBonus(coef=0.01)),
        correction=TruncatedWeight(),
        held_out=HeldOut(tasks=rows(2), samples=2, every=1),
        max_staleness=1,
        steps=2,
    )
    run_local(run, tmp_path)
    written = {name for row in JsonLines(tmp_path / "metrics.jsonl").read() for name in row} - {"step"}
    assert {"kl/ref", "entropy/policy", "entropy/mean", "eval/pass@2", "loss", "sync/gap"} <= written
    assert unexplained(written) == []


def test_the_table_has_every_metric_of_the_methods():
    sys.path.insert(0, str(ROOT / "tests" / "harness"))
    import test_every_method as harness

    logprob_NS, b = harness.batch()
    names = {name for o in harness.OBJECTIVES for name in o(logprob_NS, harness.surveyed(o, b)).metrics}
    for method in harness.ADVANTAGES + harness.SHAPINGS:
        names |= set(method.report(b))
    assert {"clip_ratio/low", "kl/old", "value/loss"} <= names
    assert unexplained(names) == []


def test_a_metric_that_nobody_explains_is_noticed():
    assert unexplained(["mismatch/prob_diff", "mismatch/made_up"]) == ["mismatch/made_up"]


def test_the_first_reward_says_what_is_solved():
    shaped = rollout(0.4, scores={"right": 1.0, "short": -0.6})
    assert (
        rollout_metrics([group(shaped, rollout(1.2, scores={"right": 0.0, "short": 1.2}, sample=1))])["pass_rate"]
        == 0.5
    )
    assert rollout_metrics([group(rollout(1.0), rollout(0.0, sample=1))])["pass_rate"] == 0.5  # no rewards: the return
