"""Where proofs are cut, what the limits of the cut are, and rows that are no proofs."""

from dataclasses import replace

import pytest

from gimbal.environments.dataset import Rows
from gimbal.environments.natural_deduction import GOAL, Theorems
from gimbal.environments.segments import Segments, segments

LEAN = {  # "rfl" leaves 2 goals, "linarith" and "simp" close one each
    "prompt": "theorem",
    "states": ["⊢ a ∧ b", "h : a\n⊢ a ∧ b", "⊢ a\n\n⊢ b", "⊢ b", "⊢ b'"],
    "tactics": ["intro h", "constructor", "simp", "rw [c]", "linarith"],
    "name": "t1",
}


@pytest.mark.parametrize(
    ("most", "at_goals", "cuts"),
    [
        (0, True, [(0, 2), (2, 3), (3, 5)]),
        (1, True, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (1, False, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        (2, False, [(0, 2), (2, 4), (4, 5)]),
        (0, False, [(0, 5)]),
    ],
)
def test_cuts_by_hand(most, at_goals, cuts):
    assert segments([1, 1, 2, 1, 1, 0], most, at_goals=at_goals) == cuts
    cut = Segments(tasks=Rows(rows=(LEAN,)), most=most, at_goals=at_goals)
    assert [cut[n].prompt for n in range(len(cut))] == [f"{LEAN['states'][start]}\n" for start, _ in cuts]
    assert [cut[n].columns["completion"] for n in range(len(cut))] == ["\n".join(LEAN["tactics"][a:b]) for a, b in cuts]


def test_a_cut_keeps_other_columns_and_tells_its_segments_apart():
    cut = Segments(tasks=Rows(rows=(LEAN,)))
    assert {cut[n].columns["name"] for n in range(3)} == {"t1"} and "states" not in cut[0].columns
    assert len({cut[n].id for n in range(3)}) == 3


@pytest.mark.parametrize("fields", [{}, {"most": 2}, {"most": 1}, {"at_goals": False}, {"at_goals": False, "most": 3}])
def test_segments_of_a_proof_put_together_are_the_proof(fields):
    tasks = Theorems(size=40)
    cut = Segments(tasks=tasks, goal=GOAL, **fields)
    written = "\n".join(cut[n].columns["completion"] for n in range(len(cut))).split("\n")
    assert written == [tactic for n in range(40) for tactic in tasks[n].columns["tactics"]]
    if fields.get("most"):
        assert all(cut[n].columns["completion"].count("\n") < fields["most"] for n in range(len(cut)))


def test_a_segment_ends_where_the_number_of_goals_changes_and_nowhere_else():
    """Against the prover's own states: within a segment the number stays."""
    tasks = Theorems(size=30)
    for task in map(tasks.__getitem__, range(30)):
        states = task.columns["states"]
        counts = [*(len(state.split(";")) for state in states), 0]
        ends = [end for _, end in segments(counts)]
        assert ends == [end for end in range(1, len(counts)) if counts[end] != counts[end - 1]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"states": ["⊢ a"]}, "1 states and 5 tactics"),
        ({"states": None}, "its column states is None"),
        ({"tactics": "simp"}, "its column tactics is 'simp'"),
        ({"tactics": [], "states": []}, "0 states and 0 tactics"),
        (
            {"tactics": ["", "constructor", "simp", "rw [c]", "linarith"]},
            "an empty tactic in .*: take it out, and its state",
        ),
        ({"tactics": ["intro h", "constructor", " ", "rw [c]", "linarith"]}, "an empty tactic in"),
        ({"states": ["a"] * 5}, "nothing is open in the state 'a'.*Segments.goal"),
    ],
)
def test_rows_that_are_no_proofs_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        len(Segments(tasks=Rows(rows=({**LEAN, **changes},))))


def test_settings_that_mean_nothing_are_refused():
    cut = Segments(tasks=Rows(rows=(LEAN,)))
    with pytest.raises(ValueError, match="most is -1"):
        replace(cut, most=-1)
    with pytest.raises(ValueError, match="goal is empty"):
        replace(cut, goal="")
