"""Every task in two wordings."""

import pytest

from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.reworded import Reworded


def test_both_wordings_share_answer_and_family():
    tasks = Reworded(tasks=training_tasks(size=3))
    pairs = [(tasks[2 * i], tasks[2 * i + 1]) for i in range(3)]
    assert len(tasks) == 6 and len({task.id for pair in pairs for task in pair}) == 6
    for i, (plain, other) in enumerate(pairs):
        assert plain.answer == other.answer and plain.columns == other.columns and plain.columns["family"] == i
        assert other.prompt == f"{other.columns['metadata']['expression']} =\n" != plain.prompt


def test_a_template_that_asks_too_much_is_told():
    with pytest.raises(ValueError, match="word"):
        Reworded(tasks=training_tasks(size=1), template="{word}")[1]
