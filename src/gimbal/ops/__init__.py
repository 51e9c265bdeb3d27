"""Masked means, aggregation, log-ratios, KL estimators, group statistics: the arithmetic without any paper's name."""

from gimbal.ops.aggregate import (
    AbstractAggregation,
    ConstantMean,
    SequenceMean,
    SequenceSum,
    TokenMean,
)
from gimbal.ops.groups import (
    group_mad,
    group_mean,
    group_median,
    group_normalised,
    group_others_mean,
    group_size,
    group_std,
    last_row_of_episode,
)
from gimbal.ops.levels import Level, pooled
from gimbal.ops.masked import masked_mean, masked_std, masked_sum, sequence_mean
from gimbal.ops.ratio import (
    LOG_RATIO_LIMIT,
    effective_sample_share,
    k1,
    k2,
    k3,
    log_ratio,
    ratio,
)
from gimbal.ops.seeds import philox, stable_hash

__all__ = [
    "LOG_RATIO_LIMIT",
    "AbstractAggregation",
    "ConstantMean",
    "Level",
    "SequenceMean",
    "SequenceSum",
    "TokenMean",
    "effective_sample_share",
    "group_mad",
    "group_mean",
    "group_median",
    "group_normalised",
    "group_others_mean",
    "group_size",
    "group_std",
    "k1",
    "k2",
    "k3",
    "last_row_of_episode",
    "log_ratio",
    "masked_mean",
    "masked_std",
    "masked_sum",
    "philox",
    "pooled",
    "ratio",
    "sequence_mean",
    "stable_hash",
]
