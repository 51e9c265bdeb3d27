"""Groups by hand for what watches groups: every task has a chance of success, and outcomes follow from (task, visit, sample)."""

import made
import torch

from gimbal.dataflow.base import Begun, Progress
from gimbal.ops import philox
from gimbal.records import VISIT, Group


def group(task, rewards, index=0):
    empty = torch.zeros(1)
    rollouts = (
        made.rollout(
            task=task,
            sample=n,
            behavior_S=empty,
            reward_S=empty,
            score=float(reward),
            scores={"right": float(reward), "necessary": 1.0, "steps": 2.0},
        )
        for n, reward in enumerate(rewards)
    )
    return Group.of(index, task, rollouts)


def drawn(task, chance, count, first=0):
    """Outcomes of the samples from ``first`` on, 1 with the task's chance."""
    draw = (philox(task.id, task.columns.get(VISIT, 0), n).random() < chance for n in range(first, first + count))
    return [float(success) for success in draw]


class World:
    """What a curriculum gives is answered by ``chance(task)``, 4 rollouts a task, ``batch`` tasks a step. ``order`` of arrival."""

    def __init__(self, live, chance, *, batch=4, order=lambda groups: groups):
        self.live, self.chance, self.batch, self.order = live, chance, batch, order
        self.version, self.given = 0, []

    def steps(self, count):
        """The ids of what was given out in each."""
        found = []
        for _ in range(count):
            self.live.step(Progress(version=self.version, drawn=100 * self.version))
            tasks = [self.live.next() for _ in range(self.batch)]
            groups = [group(t, drawn(t, self.chance(t), 4), index=n) for n, t in enumerate(tasks)]
            for each in self.order(groups):
                self.live.observe(each)
            found.append([task.id for task in tasks])
            self.version += 1
        self.given += found
        return found


def spent(budget, tasks, chance):
    """The groups of a round when the budget asks for no more: it is asked about each alone, or about all."""
    plans = budget.plan(tasks)
    asked = [plan.rollouts for plan in plans]
    rounds = [list(range(len(tasks)))] if budget.rounds else [[n] for n in range(len(tasks))]
    for places in rounds:
        for _ in range(100):
            begun = [
                Begun(group=group(tasks[n], drawn(tasks[n], chance(tasks[n]), asked[n]), n), asked=asked[n])
                for n in places
            ]
            more = budget.more(begun)
            if not any(more):
                break
            for n, count in zip(places, more, strict=True):
                asked[n] += count
        else:
            raise AssertionError("a budget comes to an end")
    return [group(task, drawn(task, chance(task), asked[n]), n) for n, task in enumerate(tasks)]
