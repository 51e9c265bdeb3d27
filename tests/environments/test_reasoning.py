import pickle

import pytest

from gimbal.environments import reasoning
from gimbal.environments.reasoning import ReasoningGym, names

SMALL = {"min_terms": 2, "max_terms": 2, "max_digits": 1}


def test_a_task_carries_what_scoring_needs():
    task = ReasoningGym(name="chain_sum", seed=4, parameters={"max_terms": 3})[2]
    assert task.prompt == task.columns["question"] + "\n"
    assert task.source == "chain_sum" and task.id.endswith(":4:2")
    assert task.columns["metadata"]["difficulty"]["num_terms"] == (2, 3)


def test_the_same_index_is_the_same_task_and_ids_tell_parameters_apart():
    tasks = ReasoningGym(size=5)
    assert tasks[3] == ReasoningGym(size=5)[3] == pickle.loads(pickle.dumps(tasks))[3]
    assert len({tasks[i].id for i in range(5)} | {ReasoningGym(size=5, parameters=SMALL)[0].id}) == 6


def test_neighbouring_seeds_share_no_entries_by_shift():
    questions = [{ReasoningGym(seed=seed, size=200)[i].prompt for i in range(200)} for seed in (0, 1)]
    assert len(questions[0] & questions[1]) < 20  # the library's own seeds 0 and 1 share 199


def test_excluded_questions_never_come_out():
    held_out = ReasoningGym(seed=1, size=60, parameters=SMALL)
    plain = ReasoningGym(size=200, parameters=SMALL)
    training = ReasoningGym(size=200, parameters=SMALL, exclude=held_out)
    exam = {held_out[i].prompt for i in range(60)}
    kept = [training[i].prompt for i in range(200)]
    assert {plain[i].prompt for i in range(200)} & exam  # the exclusion has something to do
    assert not set(kept) & exam
    assert [kept[i] for i in range(200) if plain[i].prompt not in exam] == [
        plain[i].prompt for i in range(200) if plain[i].prompt not in exam
    ]
    assert kept == [ReasoningGym(size=200, parameters=SMALL, exclude=held_out)[i].prompt for i in range(200)]


def test_a_task_space_that_is_all_held_out_is_refused():
    tiny = {"min_terms": 1, "max_terms": 1, "max_digits": 1}
    held_out = ReasoningGym(seed=1, size=300, parameters=tiny)
    with pytest.raises(ValueError, match="hold out fewer"):
        ReasoningGym(size=5, parameters=tiny, exclude=held_out)[0]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"name": "chain_sums"}, "no dataset 'chain_sums'; did you mean 'chain_sum'"),
        ({"parameters": {"max_term": 3}}, "no parameter 'max_term'; did you mean 'max_terms'"),
        ({"parameters": {"seed": 3}}, "no parameter 'seed'"),
        ({"parameters": {"min_terms": 5, "max_terms": 2}}, "chain_sum refuses the parameters .*max_terms must be"),
        ({"parameters": {"max_terms": "three"}}, "chain_sum refuses the parameters"),
    ],
)
def test_mistakes_are_named(tasks, message):
    with pytest.raises(ValueError, match=message):
        ReasoningGym(**tasks)[0]


def test_bounds():
    with pytest.raises(ValueError, match="size"):
        ReasoningGym(size=0)
    with pytest.raises(IndexError):
        ReasoningGym(size=3)[3]


def test_hashable_and_named():
    assert hash(ReasoningGym(parameters=SMALL)) == hash(ReasoningGym(parameters=dict(SMALL)))
    assert ReasoningGym(parameters=SMALL) != ReasoningGym()
    assert "countdown" in names()


@pytest.mark.parametrize("count", [1e308, 10**12])
def test_a_count_without_end_is_refused_and_not_waited_for(monkeypatch, count):
    monkeypatch.setattr(reasoning, "SECONDS", 0.3)
    huge = ReasoningGym(name="chain_sum", parameters={"max_terms": count})
    with pytest.raises(ValueError, match=r"chain_sum with the parameters .* makes no task in 0.3 s .*smaller"):
        huge[0]
    with pytest.raises(ValueError, match=r"chain_sum leaves out the questions of 10,000,000 tasks.* at most 1,000,000"):
        ReasoningGym(name="chain_sum", exclude=ReasoningGym(size=10_000_000))
