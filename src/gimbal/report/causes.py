"""What a step's log-ratios are made of, as far as it costs nothing to know, and whether its samples are all there, once each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch

from gimbal import ops
from gimbal.records import Group, TrainBatch


def cause_metrics(batch: TrainBatch, learner_version: int, *, at_version: bool) -> dict[str, float]:
    """Mean signed parts of log(anchor / sampler); with ``cause/update``, which the learner logs, they add up to log(policy / sampler).

    ``at_version``: the anchor is the version that drew each decision, so that all of it is discrepancy, and ``cause/update`` is the
    staleness (and, from a step's second update on, what the step itself moved). Otherwise the anchor is the learner before the step:
    decisions of its own version show the discrepancy, and in older ones it cannot be told from staleness (``cause/unsplit``).
    """
    mask_NS, reader = batch.mask_NS, cause_metrics
    log_NS = batch.column("proximal_NS", reader) - batch.column("behavior_NS", reader)
    if at_version:
        return {"cause/discrepancy": float(ops.masked_mean(log_NS, mask_NS))}
    fresh_NS = batch.column("version_NS", reader) == learner_version
    return {
        "cause/discrepancy": float(ops.masked_mean(log_NS * fresh_NS, mask_NS)),
        "cause/unsplit": float(ops.masked_mean(log_NS * ~fresh_NS, mask_NS)),
    }


def sample_metrics(groups: Sequence[Group], came: int) -> dict[str, float]:
    """Rollouts of the groups trained on: those there twice, and how many of those that ``came`` are not there at all."""
    keys = [(group.index, episode.sample) for group in groups for episode in group.episodes]
    distinct = len(set(keys))
    return {"samples/doubled": float(len(keys) - distinct), "samples/missing": float(max(0, came - distinct))}


def repeat_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Share of texts written several times in one group whose scores are not alike; nothing where no text was repeated.

    Episodes of a control policy have no text, and that two of them are as empty says nothing of their returns.
    """
    repeated = unlike = 0
    for group in groups:
        scores: Mapping[str, list[float]] = defaultdict(list)
        for episode in filter(lambda episode: episode.text, group.episodes):
            scores[f"{episode.stop}:{episode.text}"].append(episode.earned)
        several = [values for values in scores.values() if len(values) > 1]
        repeated += len(several)
        unlike += sum(max(values) - min(values) > 1e-6 for values in several)
    return {"reward/repeats": float(repeated), "reward/unlike_frac": unlike / repeated} if repeated else {}


def surprise_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """-mean log-probability of what was sampled, which estimates the entropy of the distributions it was drawn from."""
    drawn = [row.behavior_S[row.mask_S] for group in groups for row in group.rows]
    behavior_D = torch.cat(drawn) if drawn else torch.zeros(0)
    return {"entropy/sampled": -float(behavior_D.mean())} if len(behavior_D) else {}
