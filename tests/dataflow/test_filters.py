import made
import pytest

from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.records import Drop, Group, Task

TASK = Task(id="t")


def _group(*scores: float) -> Group:
    rollouts = [made.rollout(task=TASK, sample=i, score=value) for i, value in enumerate(scores)]
    return Group.of(0, TASK, rollouts)


def test_equal_scores_are_dropped_with_their_reason():
    for scores in [(0.0, 0.0, 0.0), (1.0, 1.0), (0.3,)]:
        assert ZeroVariance()(_group(*scores)) == Drop("zero_variance")


def test_a_mixed_group_passes_unchanged():
    group = _group(0.0, 0.0, 1.0)
    assert ZeroVariance()(group) is group


def test_eps_0_drops_only_equal_scores():
    group = _group(0.5, 0.5 + 1e-6)
    assert ZeroVariance()(group) is group
    assert ZeroVariance(eps=1e-3)(group) == Drop("zero_variance")
    with pytest.raises(ValueError, match="eps"):
        ZeroVariance(eps=-1.0)
