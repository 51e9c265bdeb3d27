"""Figures of a policy-gradient step: advantages, and the ratios between sampled and trained policy."""

from __future__ import annotations

from collections.abc import Sequence

from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.objectives.base import DISCREPANCY
from gimbal.records import Group, TrainBatch
from gimbal.report.causes import cause_metrics
from gimbal.report.metrics import advantage_metrics, mismatch_metrics, order_metrics, value_metrics, weight_metrics


def gradient_metrics(
    method: AbstractPolicyGradient, groups: Sequence[Group], batch: TrainBatch, version: int, *, densities: bool
) -> dict[str, float]:
    """``groups``: those whose rows are in the batch; none if a store supplied other rows. ``densities``: for continuous actions.

    Of models of another kind the figures of the ratios are apart, under the model's name.
    """
    metrics = advantage_metrics(batch) | value_metrics(batch)
    if groups:
        metrics |= order_metrics(groups, batch)
    anchor = method.anchor
    policys, *others = method.segments
    for segment in others if DISCREPANCY not in anchor.absorbs else ():
        found = mismatch_metrics(
            segment.of(batch), version, densities=method.kinds[segment.kind].policy.family.densities
        )
        metrics |= {segment.named(name): value for name, value in found.items()}
    batch = policys.of(batch)
    if DISCREPANCY not in anchor.absorbs:  # else the anchor is the sampler, and a gap of 0 means nothing
        metrics |= mismatch_metrics(batch, version, densities=densities)
        if anchor.at_sampling or isinstance(anchor, Recompute):  # else the anchor is not a version of the policy
            metrics |= cause_metrics(batch, version, at_version=anchor.at_sampling)
    if method.correction is not None:
        metrics |= weight_metrics(method.correction(batch), batch.mask_NS)
    return metrics
