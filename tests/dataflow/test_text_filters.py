"""Filters that read texts: copies, garbled ones, wrong steps; and what is drawn again for what they take away."""

from dataclasses import replace

import made
import pytest
import torch
from uneven import Counting, Short, Uneven

from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.filters.distinct import Distinct
from gimbal.dataflow.filters.first_of import FirstOf
from gimbal.dataflow.filters.legible import Legible
from gimbal.dataflow.filters.right_steps import RightSteps
from gimbal.dataflow.staleness import Pace
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Drop, Group, Task
from gimbal.runtime.base import AtOnce
from gimbal.runtime.pipeline import Parts, Pipeline, Starved

TASK = Task(id="t")
OPEN, CLOSE = "<think>", "</think>"


def group(*texts):
    """A decision for each tag and each character, and one for the end."""
    rows = []
    for sample, text in enumerate(texts):
        count = len(text.replace(OPEN, "(").replace(CLOSE, ")").replace("<answer>", "[").replace("</answer>", "]")) + 1
        rows.append(made.rollout(TASK, sample=sample, text=text, decisions=Tokens.row([0], [0] * count), score=0.0))
    return Group.of(0, TASK, rows)


def texts(outcome):
    return [episode.text for episode in outcome.episodes]


def test_of_copies_the_first_stay():
    came = group("a", "b", "a", "a", "b", "")
    assert [e.sample for e in Distinct()(came).episodes] == [0, 1, 5]
    assert [e.sample for e in Distinct(copies=2)(came).episodes] == [0, 1, 2, 4, 5]
    assert Distinct(copies=3)(came) is came
    apart = group("a", "b")
    assert Distinct()(apart) is apart
    wordless = group("", "", "")
    assert Distinct()(wordless) is wordless, "actions have no text, and are not the same"


def test_the_first_by_number_stay_in_any_order():
    came = group("a", "b", "c", "d")
    turned = replace(came, episodes=came.episodes[::-1])
    assert texts(FirstOf(count=2)(came)) == ["a", "b"] and texts(FirstOf(count=2)(turned)) == ["b", "a"]
    assert texts(FirstOf(count=4)(came)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("2+3=5\n\té 中 🙂", True),
        ("2+3=\ufffd5", False),
        ("2+3=\x005", False),
        ("2+3=\ue0005", False),
        ("7+7+7+7+7+7+7+7+", False),
        ("7+7+7+7+7+7+7+", True),  # seven times
        ("7+7+7+7+7+7+7+7+ so 56", True),  # and on
        ("abababababababab" * 2, False),
        ("", True),
    ],
)
def test_what_cannot_be_read_or_goes_round_and_round_leaves(text, fine):
    came = group("fine", text)
    assert texts(Legible()(came)) == (["fine", text] if fine else ["fine"])
    assert texts(Legible(most=1.0, loops=0)(came)) == ["fine", text]
    assert Legible()(group("\x00")) == Drop("garbled")
    assert texts(Legible(most=0.5)(group("ab\x00\x00", "a\x00\x00"))) == ["ab\x00\x00"], "more than half of it"


SOUND = "<think>2+3=5 5+4=9 9-1=8</think><answer>8</answer>"
MIDDLE = "<think>2+3=5 5+4=8 8-1=7</think><answer>7</answer>"
BROKEN = "<think>2+3=5 6+4=10 10-1=8</think><answer>8</answer>"
STEPS = RightSteps(separator=" ", chained=True)


def trained(outcome, sample=0):
    """What of the text trains, a decision each: tags are one letter."""
    row = outcome.episodes[sample].last
    short = row.text.replace(OPEN, "(").replace(CLOSE, ")").replace("<answer>", "[").replace("</answer>", "]") + "."
    return "".join(c if keep else "_" for c, keep in zip(short, row.mask_S.tolist(), strict=True))


def test_only_right_steps_train_and_the_others_stay_as_context():
    assert trained(STEPS(group(SOUND))) == "(2+3=5 5+4=9 9-1=8)[8]."
    assert trained(STEPS(group(MIDDLE))) == "(2+3=5 ______8-1=7)[7]."
    assert trained(STEPS(group(BROKEN))) == "(2+3=5 " + "_" * 18
    assert trained(replace(STEPS, chained=False)(group(BROKEN))) == "(2+3=5 6+4=10 " + "_" * 11
    whole = group(SOUND)
    assert torch.equal(STEPS(whole).episodes[0].last.mask_S, whole.episodes[0].last.mask_S)


def test_segments_are_runs_of_right_steps():
    long = "<think>1+1=2 2+1=4 4+1=5 5+1=6</think><answer>6</answer>"
    assert trained(RightSteps(separator=" ", chained=True, run=1)(group(long))) == "(1+1=2 ______4+1=5 5+1=6)[6]."
    assert trained(RightSteps(separator=" ", chained=True, run=2)(group(long))) == "_____________4+1=5 5+1=6)[6]."
    assert RightSteps(separator=" ", chained=True, run=3)(group(long)) == Drop("no_right_steps")


def test_a_guess_trains_only_if_asked_and_what_is_observed_never():
    guess = group("<answer>7</answer>", SOUND)
    assert texts(STEPS(guess)) == [SOUND] and STEPS(group("<answer>7</answer>")) == Drop("no_right_steps")
    assert len(replace(STEPS, guesses=True)(guess).episodes) == 2
    row = group(SOUND).episodes[0].last
    told = replace(row, mask_S=row.mask_S & (torch.arange(row.length) != 3))
    assert trained(STEPS(Group.of(0, TASK, [told])))[3] == "_"


@pytest.mark.parametrize(
    "wrong", [lambda: Distinct(copies=0), lambda: FirstOf(count=0), lambda: Legible(loops=1), lambda: RightSteps(run=0)]
)
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"at least 1|2 times or more"):
        wrong()


class Wordy(Uneven):
    """Every third group says one thing, the others as many as they have rollouts."""

    def step(self):
        done = []
        for finished in super().step():
            text = "same" if finished.key[0] % 3 == 0 else f"{finished.key[1]}"
            done.append(replace(finished, outcome=finished.outcome.map(lambda row, text=text: replace(row, text=text))))
        return done


def pipeline(filters, patience=10):
    rewards = [Short()]
    return Pipeline(
        Parts(
            engine=Wordy(0, 1000, 0.0),
            scorer=AtOnce(rewards),
            curriculum=Counting(),
            budget=FixedBudget(4, 64),
            rewards=rewards,
            filters=filters,
            sampling=Sampling(max_length=64),
            least=2,
        ),
        Pace().start(0, 3),
        ahead="ready",
        seed=0,
        max_empty_batches=patience,
    )


def driven(line, steps):
    found = []
    for version in range(steps):
        line.parts.engine.load(version, {})
        found.append(line.next_batch(version)[0])
    return found


def test_a_group_that_is_dropped_is_drawn_again_one_at_a_time_and_a_rollout_is_not():
    """Refill: each batch is whole, and no more groups are asked for than were dropped. Without: the group trains with what is left."""
    line = pipeline((Distinct(),))
    batches = driven(line, 6)
    assert [len(batch) for batch in batches] == [3] * 6
    assert all(len(g.episodes) == 4 for batch in batches for g in batch), (
        "of a group of copies one is left, which is too few"
    )
    assert (
        line.drops["too_few"] == line.dispatched - 18 > 0
        and line.drops["rollouts/Distinct"] == 3 * line.drops["too_few"]
    )
    line = pipeline((Distinct(copies=2),))
    sizes = {g.index % 3 == 0: len(g.episodes) for batch in driven(line, 6) for g in batch}
    assert sizes == {True: 2, False: 4} and line.dispatched == 18 and line.drops["too_few"] == 0
    assert line.drops["rollouts/Distinct"] == 2 * 6


def test_decisions_that_train_no_more_are_counted():
    class Half(AbstractFilter):
        def __call__(self, group):
            def cut(row):
                return replace(row, mask_S=row.mask_S & (torch.arange(row.length) > 0))

            return replace(group, episodes=tuple(e.map(cut) if e.length > 1 else e for e in group.episodes))

    line = pipeline((Half(),))
    groups = [g for batch in driven(line, 4) for g in batch]
    assert line.drops["decisions/Half"] == sum(e.length > 1 for g in groups for e in g.episodes) > 0


def test_filters_that_leave_nothing_end_the_run_with_its_reasons():
    line = pipeline((FirstOf(count=1),), patience=2)
    with pytest.raises(Starved, match="6 too_few"):
        driven(line, 1)
