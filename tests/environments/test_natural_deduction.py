"""Tactics by hand, proofs that the prover takes, and theorems that truth tables know to be true."""

from dataclasses import replace
from itertools import product

import pytest

from gimbal.environments import natural_deduction
from gimbal.environments.natural_deduction import NaturalDeduction, Theorems, applied, parts, proof, read, written
from gimbal.records import Task


@pytest.mark.parametrize(
    ("goal", "tactic", "left"),
    [
        ("?>pq", "i", "p?q"),
        ("p?>pq", "i", "p?q"),  # known already
        ("q?&p|qr", "s", "q?p;q?|qr"),
        ("?|p&qr", "l", "?p"),
        ("?|p&qr", "r", "?&qr"),
        ("r,&pq?p", "c2", "r,p,q?p"),
        ("|pq,r?r", "c1", "r,p?r;r,q?r"),
        ("p,q?q", "a2", ""),
        (">p>qr?r", "a1", ">p>qr?p;>p>qr?q"),
        (">p>qr?>qr", "a1", ">p>qr?p"),  # of two premises, as many as lead to what is wanted
        (">pq?p", "a1", None),
        ("p?>pq", "s", None),
        ("p?p", "i", None),
        ("p?&pq", "l", None),
        ("p?p", "c1", None),
        ("p?p", "a2", None),
        ("p?p", "a0", None),
        ("p?p", "a", None),
        ("p?p", "", None),
        ("p?p", "a1 ", None),
        ("p?p", "x1", None),
        ("?>pq", "i1", None),
    ],
)
def test_tactics_by_hand(goal, tactic, left):
    after = applied(*read(goal), tactic)
    assert (None if after is None else written(after)) == left


def true(formula, world):
    if formula in world:
        return world[formula]
    one, other = (true(part, world) for part in parts(formula))
    return {"&": one and other, "|": one or other, ">": not one or other}[formula[0]]


def test_theorems_are_true_in_every_world_and_their_proofs_hold():
    prover, tasks = NaturalDeduction().open(), Theorems(size=60)
    lengths = set()
    for task in map(tasks.__getitem__, range(60)):
        ((known, wanted),) = read(task.prompt)
        worlds = [dict(zip("pqr", world, strict=True)) for world in product((False, True), repeat=3)]
        assert all(true(wanted, world) for world in worlds if all(true(each, world) for each in known))
        prover.reset(task, 0)
        for state, tactic in zip(task.columns["states"], task.columns["tactics"], strict=True):
            assert written(prover.goals) == state
            moment = prover.step(tactic)
            assert not moment.errors
        assert moment.success and moment.terminated and moment.reward == 1
        lengths.add(len(task.columns["tactics"]))
    assert lengths <= set(range(3, 11)) and len(lengths) > 3


def test_what_is_true_in_every_world_and_has_no_intuitionistic_proof_is_not_proved():
    """Peirce's law."""
    assert proof(*read("?>>>pqpp"), 6) is None
    assert proof(*read("?>p>>pqq"), 3) == ("i", "i", "a2", "a1")


def test_a_tactic_that_does_not_apply_is_an_error_and_changes_nothing():
    prover = NaturalDeduction().open()
    prover.reset(Task(id="t", prompt="p?>qp\n"), 0)
    moment = prover.step("a1")
    assert (moment.errors, moment.observation, moment.reward, moment.terminated) == (1, "p?>qp", 0.0, False)
    other = prover.fork()
    assert other.step("i").observation == "p,q?p" and written(prover.goals) == "p?>qp"


def test_held_out_theorems_are_new_by_whatever_letters():
    """No renaming of letters makes one of these of one of those."""

    def named(text):
        names = dict(zip(dict.fromkeys(sign for sign in text if sign.isalpha()), "pqr", strict=False))
        return "".join(names.get(sign, sign) for sign in text)

    both = [{named(Theorems(size=300, split=split)[n].prompt) for n in range(300)} for split in ("train", "held_out")]
    assert not both[0] & both[1] and min(map(len, both)) > 250
    assert Theorems(seed=1)[0].prompt != Theorems(seed=0)[0].prompt


def test_where_no_such_proof_is_found_it_is_told(monkeypatch):
    monkeypatch.setattr(natural_deduction, "TRIES", 50)
    with pytest.raises(ValueError, match="proof of 60 to 70 tactics among 50 goals: set a smaller least"):
        Theorems(least=60, most=70)[0]


@pytest.mark.parametrize(
    "settings", [{"least": 2.5}, {"most": True}, {"most": 1e9}, {"size": "9"}, {"size": 10.0}, {"seed": None}]
)
def test_settings_that_are_no_whole_numbers_are_refused(settings):
    ((name, value),) = settings.items()
    made = object.__new__(Theorems)  # as users make it: tests check types before
    vars(made).update({**vars(Theorems()), **settings})
    with pytest.raises(ValueError, match=rf"Theorems.{name} is {value!r}; it must be a whole number"):
        made.__post_init__()
    with pytest.raises(ValueError, match=r"Theorems\.size is 0"):
        Theorems(size=0)


@pytest.mark.parametrize("text", ["p", "p,?q", ">p?q", "p?", "pq?p", "p?x", "", "p?q;"])
def test_what_is_no_list_of_goals_is_refused(text):
    with pytest.raises(ValueError, match="is no list of goals"):
        read(text)
    with pytest.raises(ValueError, match="least <= most"):
        replace(Theorems(), least=5, most=4)
