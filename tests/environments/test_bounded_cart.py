"""The cart between bounds: where it can be kept inside, and what its data tell."""

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from gimbal.environments.bounded_cart import EDGE, FASTEST, WALL, BoundedCart, feasible, grid, pushed


def test_what_is_feasible_is_what_value_iteration_finds():
    """V(s) = max(h(s), min_a V(s')) on a grid, with states between its points interpolated."""
    n = 81
    states = grid(n, n)
    constraint = np.abs(states[:, 0]) - EDGE
    after = [pushed(states, np.full(len(states), force)) for force in np.linspace(-1, 1, 9)]

    def between(value, at):
        i, j = (np.clip((at[:, k] / most + 1) / 2 * (n - 1), 0, n - 1) for k, most in enumerate((WALL, FASTEST)))
        low_i, low_j = (np.minimum(x.astype(int), n - 2) for x in (i, j))
        a, b, table = i - low_i, j - low_j, value.reshape(n, n)  # rows are speeds
        near = (1 - a) * table[low_j, low_i] + a * table[low_j, low_i + 1]
        return (1 - b) * near + b * ((1 - a) * table[low_j + 1, low_i] + a * table[low_j + 1, low_i + 1])

    value = constraint
    for _ in range(60):
        value = np.maximum(constraint, np.min([between(value, at) for at in after], 0))
    found, true = value <= 1e-6, feasible(states)
    assert (found & true).sum() / (found | true).sum() > 0.99
    inside = constraint <= 0
    assert (true & inside).sum() == true.sum() and true.sum() / inside.sum() < 0.75, "being inside is not enough"


def test_a_cart_is_pushed_and_stopped_by_a_wall():
    after = pushed(np.array([[0.5, 1.0], [1.45, 1.0], [0.0, -2.0]]), np.array([1.0, 1.0, -1.0]))
    np.testing.assert_allclose(after, [[0.61, 1.1], [1.5, 0.0], [-0.2, -2.0]])


def test_it_begins_where_it_can_be_kept_and_tells_its_costs():
    world = BoundedCart()
    for seed in range(50):
        seen, info = world.reset(seed=seed)
        assert feasible(seen[None])[0] and info == {"cost": 0.0}
    world.reset(options={"begin": (0.95, 1.0)})
    seen, reward, terminated, truncated, info = world.step(np.array([0.0]))
    assert (reward, info, terminated, truncated) == (pytest.approx(1.05), {"cost": 1.0}, False, False)
