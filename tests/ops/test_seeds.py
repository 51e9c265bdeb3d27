"""Random streams by name."""

import numpy as np

from gimbal.ops import philox, stable_hash


def test_the_same_name_is_the_same_stream_whatever_ran_before():
    first = philox(1, "sample", "task-3", 0).random(4)
    philox(1, "sample", "task-3", 1).random(100)
    assert np.array_equal(first, philox(1, "sample", "task-3", 0).random(4))


def test_other_names_are_other_streams():
    names = [(1, "a", 0), (1, "a", 1), (2, "a", 0), (1, "b", 0), (1, "a0"), ("1a", 0), (1, "a", 0, 0)]
    assert len({stable_hash(*name) for name in names}) == len(names)
    draws = {float(philox(*name).random()) for name in names}
    assert len(draws) == len(names)


def test_the_hash_is_the_same_in_every_process():
    assert stable_hash(0, "minibatches", 3) == stable_hash("0", "minibatches", "3") < 2**63
    assert stable_hash("gimbal") == 2105009590521083247
