"""Rules under names: what is asked, what is shown, and that the same name is always the same rule."""

import pytest

from gimbal.environments.recall import QUESTION, known
from gimbal.environments.rulebook import Rulebook


def test_a_name_is_a_rule_and_the_context_tells_it():
    tasks = [Rulebook(rules=4)[index] for index in range(200)]
    assert {task.columns["rule"] for task in tasks} == set(range(4))
    for rule in range(4):
        own = [task for task in tasks if task.columns["rule"] == rule]
        assert len({(task.prompt, task.answer, task.columns["context"]) for task in own}) == 1
    assert len({task.prompt for task in tasks}) == 4
    for task in tasks[:20]:
        assert "".join(known([task.columns["context"]])) == task.answer and not known([task.prompt])
        assert task.prompt == QUESTION + task.columns["rest"]
        assert len(task.columns["rest"]) == 10 and len(task.columns["context"]) == len(QUESTION) + 9


def test_another_seed_has_other_rules():
    one, other = ({Rulebook(seed=seed)[index].prompt for index in range(100)} for seed in (0, 1))
    assert not one & other


def test_no_rules_are_refused():
    with pytest.raises(ValueError, match=r"Rulebook\.rules is 0; it counts the rules, 1 or more"):
        Rulebook(rules=0)
