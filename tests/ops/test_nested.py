"""Dotted paths into frozen records."""

from dataclasses import dataclass

import pytest

from gimbal.nested import get_at, replace_at
from gimbal.objectives import ClippedRatio, KLPenalty


@dataclass(frozen=True)
class Method:
    objective: ClippedRatio
    regularisers: tuple[KLPenalty, ...]
    table: dict[str, float]


METHOD = Method(ClippedRatio(), (KLPenalty(), KLPenalty(coef=0.5)), {"a": 1.0})


@pytest.mark.parametrize(
    ("path", "value"), [("objective.clip_low", 0.2), ("regularisers.1.coef", 0.5), ("table.a", 1.0)]
)
def test_a_path_reads_and_replaces(path, value):
    assert get_at(METHOD, path) == value
    other = replace_at(METHOD, path, 9.0)
    assert get_at(other, path) == 9.0 and get_at(METHOD, path) == value
    assert replace_at(other, path, value) == METHOD


@pytest.mark.parametrize(
    ("path", "missing"), [("objective.clip", "clip"), ("regularisers.2.coef", "2"), ("nothing", "nothing")]
)
def test_a_path_that_leads_nowhere_names_the_part(path, missing):
    with pytest.raises(KeyError, match=missing):
        get_at(METHOD, path)
    with pytest.raises(KeyError, match=missing):
        replace_at(METHOD, path, 1.0)
