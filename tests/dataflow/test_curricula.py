import pytest

from gimbal.dataflow.base import Plan
from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.curricula.epochs import Epochs, EpochsCurriculum
from gimbal.environments.dataset import Rows
from gimbal.records import Task

TASKS = Rows(rows=[{"prompt": str(i)} for i in range(7)])


def _draw(curriculum: EpochsCurriculum, n: int) -> list[str]:
    return [curriculum.next().prompt for _ in range(n)]


def test_every_epoch_holds_every_task_once_in_a_fresh_order():
    drawn = _draw(Epochs().start(TASKS, 0), 21)
    epochs = [drawn[i : i + 7] for i in (0, 7, 14)]
    assert all(sorted(epoch) == sorted(map(str, range(7))) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_order_depends_on_the_seed_alone():
    assert (
        _draw(Epochs().start(TASKS, 3), 10)
        == _draw(Epochs().start(TASKS, 3), 10)
        != _draw(Epochs().start(TASKS, 4), 10)
    )


@pytest.mark.parametrize("done", [0, 3, 7, 9])
def test_a_resumed_curriculum_goes_on(done):
    whole = Epochs().start(TASKS, 0)
    _draw(whole, done)
    resumed = Epochs().start(TASKS, 0)
    resumed.load_state_dict(whole.state_dict())
    assert _draw(resumed, 20) == _draw(whole, 20)


def test_a_resumed_curriculum_whose_tasks_became_fewer():
    whole = Epochs().start(TASKS, 0)
    _draw(whole, 6)
    fewer = Epochs().start(Rows(rows=[{"prompt": str(i)} for i in range(5)]), 0)
    with pytest.raises(ValueError, match=r"there are 5 tasks now, and the run has taken 6 of this epoch.*--from RUN"):
        fewer.load_state_dict(whole.state_dict())


def test_tasks_as_they_stand():
    assert _draw(Epochs(shuffle=False).start(TASKS, 0), 9) == [*map(str, range(7)), "0", "1"]


def test_fixed_budget():
    assert FixedBudget(4, 9).plan([Task(id="t")]) == [Plan(rollouts=4, max_length=9)]
    with pytest.raises(ValueError, match="rollouts is 0"):
        FixedBudget(0, 9)
