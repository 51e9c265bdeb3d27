"""The causes of a step's log-ratios, as far as they come for free, and whether each sample is there exactly once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from gimbal import ops
from gimbal.policies.base import Family
from gimbal.records import Group, TrainBatch
from gimbal.report.metrics import sampled_NS


def cause_metrics(batch: TrainBatch, learner_version: int, *, at_version: bool) -> dict[str, float]:
    """Mean signed parts of log(anchor / sampler); with ``cause/update``, which the learner logs, they add up to log(policy / sampler).

    ``at_version``: the anchor is the version that sampled each decision, so all of it is discrepancy, and ``cause/update`` is the
    staleness (plus, from a step's second update on, what the step itself moved). Otherwise the anchor is the learner before the step:
    decisions of its own version show the discrepancy; in older ones it cannot be separated from staleness (``cause/unsplit``).
    """
    mask_NS, reader = sampled_NS(batch), cause_metrics
    if not bool(mask_NS.any()):
        return {}
    log_NS = batch.column("proximal_NS", reader) - batch.column("behavior_NS", reader)
    if at_version:
        return {"cause/discrepancy": float(ops.masked_mean(log_NS, mask_NS))}
    fresh_NS = batch.column("version_NS", reader) == learner_version
    return {
        "cause/discrepancy": float(ops.masked_mean(log_NS * fresh_NS, mask_NS)),
        "cause/unsplit": float(ops.masked_mean(log_NS * ~fresh_NS, mask_NS)),
    }


def sample_metrics(groups: Sequence[Group], came: int) -> dict[str, float]:
    """Rollouts of the groups trained on: how many are there twice, and how many of those that ``came`` are missing."""
    keys = [(group.index, episode.sample) for group in groups for episode in group.episodes]
    distinct = len(set(keys))
    return {"samples/doubled": float(len(keys) - distinct), "samples/missing": float(max(0, came - distinct))}


def repeat_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Share of texts that occur several times in one group with different scores; nothing if no text was repeated.

    Episodes of a control policy have no text, so two empty ones say nothing about their returns.
    """
    repeated = unlike = 0
    for group in groups:
        scores: Mapping[str, list[float]] = defaultdict(list)
        for episode in group.episodes:
            if not episode.text or len({type(row.sampling) for row in episode.rows}) > 1:
                continue  # what was drawn by words that are the same may be another picture
            scores[f"{episode.stop}:{episode.text}"].append(episode.earned)
        several = [values for values in scores.values() if len(values) > 1]
        repeated += len(several)
        unlike += sum(max(values) - min(values) > 1e-6 for values in several)
    return {"reward/repeats": float(repeated), "reward/unlike_frac": unlike / repeated} if repeated else {}


def surprise_metrics(family: Family, groups: Sequence[Group]) -> dict[str, float]:
    """-mean log-probability of the samples, which estimates the entropy of the sampling distributions; nothing where there is none."""
    rows = [
        row
        for group in groups
        for row in group.rows
        if family.likelihoods and isinstance(row.sampling, family.sampling)
    ]
    drawn = [row.behavior_S[row.mask_S] for row in rows]
    drawn = [behavior_S for behavior_S in drawn if bool(behavior_S.any())]  # not those of rows that were written
    behavior_D = torch.cat(drawn) if drawn else torch.zeros(0)
    return {"entropy/sampled": -float(behavior_D.mean())} if len(behavior_D) else {}
