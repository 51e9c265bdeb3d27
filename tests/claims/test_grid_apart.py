"""What is computed beside the grid's means, by hand and from the loop's own rule."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import grid_apart
import holds_page
from grid import Cell

from gimbal.controllers import Stability

CELLS = [Cell("chain_sum", age, "int8", 2, rate) for age in (0, 1, 4) for rate in (1e-5, 1e-4)]


def test_cells_that_differ_in_the_rate_alone_are_one_setting():
    found = grid_apart.beside_of(dict(zip(CELLS, (-0.05, -0.03, -0.02, 0.0, 0.01, 0.02), strict=True)))
    assert (found.cells, found.settings, found.lower, found.lost, found.least) == (6, 3, 3, 2, -0.05)
    assert found.median == pytest.approx(-0.01)
    # All of the first setting, all of the last: the ends of what three settings can give.
    assert (found.low, found.high) == pytest.approx((-0.04, 0.015))


@pytest.mark.parametrize("surprise", [0.3, 0.12, 0.03])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_the_share_that_the_distance_takes_is_that_of_the_rule(surprise, part):
    rule = Stability()
    c = surprise / rule.region.calm
    discrepancy = part**2 * c * rule.region.discrepancy
    target = rule.target(rule.seen(rule.init(), surprise), discrepancy)
    assert grid_apart.share(discrepancy, target) == pytest.approx(min(part, 0.95))


def test_one_setting_in_one_seed_is_above_the_whole_in_every_other_case_and_more_seeds_make_it_rarer():
    assert holds_page.lucky(1, 1) == pytest.approx(1 / 2) and holds_page.lucky(1, 3) == pytest.approx(1 / 8)
    assert holds_page.lucky(2, 1) == pytest.approx(2 / 3), "the whole is the lowest of three in one of three cases"
