"""Routes over grids: each task has one, by a search of its own."""

from collections import deque

import pytest

from gimbal.environments.grid_routes import STEPS, GridRoutes
from gimbal.rewards.route_score import BLOCKED, FREE, GOAL, SIDE, START, RouteScore, distances


def least(grid: str) -> int:
    """Steps of a shortest route, by a search written anew: over coordinates, from the start."""
    cell = {(at // SIDE, at % SIDE): mark for at, mark in enumerate(grid)}
    begin = next(at for at, mark in cell.items() if mark == START)
    seen, waiting = {begin}, deque([(begin, 0)])
    while waiting:
        (row, column), steps = waiting.popleft()
        if cell[row, column] == GOAL:
            return steps
        for near in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if cell.get(near, BLOCKED) != BLOCKED and near not in seen:
                seen.add(near)
                waiting.append((near, steps + 1))
    return -1


@pytest.mark.parametrize("blocked", [0, 6, 12])
def test_a_task_is_a_grid_whose_goal_can_be_reached_in_time(blocked):
    for index in range(30):
        task = GridRoutes(blocked=blocked, seed=3)[index]
        assert len(task.prompt) == SIDE**2 and task.prompt.count(BLOCKED) == blocked
        assert task.prompt.count(FREE) == SIDE**2 - blocked - 2
        assert 4 <= least(task.prompt) == distances(task.prompt)[task.prompt.index(START)] <= STEPS
        RouteScore().accepts(task)
        assert task.columns["arrival"] == "<mask>" * (STEPS - 1) + "abcdefghijklmnopqrstuvwxy"[task.prompt.index(GOAL)]


def test_tasks_depend_on_their_seed_and_their_place_alone():
    tasks = GridRoutes(seed=1)
    assert tasks[5] == GridRoutes(seed=1, size=6)[5] and len({tasks[i].prompt for i in range(20)}) == 20
    assert tasks[5].prompt != GridRoutes(seed=2)[5].prompt
    with pytest.raises(IndexError):
        GridRoutes(size=6)[6]
    with pytest.raises(ValueError, match=r"GridRoutes\.blocked 13"):
        GridRoutes(blocked=13)
