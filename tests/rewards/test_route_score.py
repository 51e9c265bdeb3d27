"""What a route over a grid is worth, against routes that are counted and judged by hand."""

import numpy as np
import pytest

from gimbal.environments.grid_routes import GridRoutes, shortest
from gimbal.rewards.route_score import AROUND, BLOCKED, GOAL, LETTERS, START, RouteScore, distances


def text(squares):
    return "".join(LETTERS[square] for square in squares)


def test_shortest_routes_score_1_and_each_of_them_is_drawn(group_of):
    drawn, tasks = np.random.default_rng(0), GridRoutes(seed=1)
    for index in range(30):
        grid = tasks[index].prompt
        found = {text(shortest(grid, drawn)) for _ in range(60)}

        def count(at, left, grid=grid):
            """Routes that reach the goal in exactly the steps left, entering no blocked square."""
            if left == 0:
                return int(grid[at] == GOAL)
            return sum(count(near, left - 1, grid) for near in AROUND[at] if grid[near] != BLOCKED)

        ways = count(grid.index(START), distances(grid)[grid.index(START)])
        assert len(found) == ways if ways < 5 else 2 < len(found) <= ways
        assert set(RouteScore()(group_of(*sorted(found), prompt=grid))) == {1.0}


OPEN = "S....", ".#...", "..G..", ".....", "....."


@pytest.mark.parametrize(
    ("route", "worth"),
    [
        ("bchmmmmm", 1.0),
        ("bcdinmmm", 4 / 6),
        ("bchhmmmm", 4 / 5),
        ("aabchmmm", 4 / 6),
        ("fklmmmmm", 1.0),
        ("fklmlmmm", 4 / 6),
        ("fklmlkkk", 0.0),
        ("fglmmmmm", 0.0),
        ("flmmmmmm", 0.0),
        ("bcdefghm", 0.0),
        ("bchm", 1.0),
        ("fkl?mmmm", 0.0),
        ("", 0.0),
    ],
)
def test_a_route_is_worth_the_least_steps_by_those_that_it_takes_and_nothing_where_it_is_none(route, worth, group_of):
    assert RouteScore()(group_of(route, prompt="".join(OPEN))) == [pytest.approx(worth)]


def test_a_task_that_is_no_such_grid_is_refused(group_of):
    for wrong in ("S....", "".join(OPEN).replace("G", "."), "".join(OPEN).replace("S", "SS")[:25], "S#G" + "#" * 22):
        with pytest.raises(ValueError, match=r"RouteScore reads grids of 5 x 5.*GridRoutes\(\)"):
            RouteScore().accepts(group_of("a", prompt=wrong).task)
