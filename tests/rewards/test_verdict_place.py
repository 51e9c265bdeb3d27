"""A verifier's two rewards: by hand, in streams, and why they are kept apart (OmniVerifier-M1, theorem by enumeration)."""

import itertools
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.environments.proofreading import Proofreading
from gimbal.recipes.papers.rewards.omniverifier_m1 import omniverifier_m1
from gimbal.records import Drop
from gimbal.rewards.scoring import score
from gimbal.rewards.verdict_place import VerdictAndPlace, overlap
from gimbal.rewards.working_steps import WorkingSteps

VERDICT, PLACE, JOINT = (VerdictAndPlace(measure=measure) for measure in ("verdict", "place", "joint"))


def said(*answers):
    return [f"<answer>{answer}</answer>" for answer in answers]


def test_overlap_by_hand():
    assert overlap((2, 4), (3, 6)) == pytest.approx(2 / 5) and overlap((1, 1), (1, 1)) == 1
    assert overlap((1, 2), (3, 4)) == 0 and overlap((4, 2), (1, 9)) == 0


def test_by_hand(group_of):
    wrong = group_of(*said("2-3", "right", "3-6", "7-9", "?"), "nothing", columns={"span": (2, 3)})
    assert VERDICT(wrong) == [1, 0, 1, 1, 0, 0]
    assert PLACE(wrong) == JOINT(wrong) == [1, 0, pytest.approx(0.2), 0, 0, 0]
    sound = group_of(*said("right", "2-3", "?"), columns={"span": None})
    assert VERDICT(sound) == JOINT(sound) == [1, 0, 0] and PLACE(sound) == [0, 0, 0]


def test_numbers_that_python_does_not_read_are_no_place(group_of):
    group = group_of(*said("2-" + "9" * 5000, "9" * 5000 + "-3"), columns={"span": (2, 3)})
    assert VERDICT(group) == PLACE(group) == JOINT(group) == [0, 0]


def test_each_stream_is_scored_by_its_own_measure_and_joint_scores_all(group_of):
    for stream, there in (("verdict", (True, False)), ("place", (False, True))):
        group = group_of(*said("2-3"), columns={"span": (2, 3), "stream": stream})
        assert tuple(reward(group) != [None] for reward in (VERDICT, PLACE)) == there and JOINT(group) == [1]
    assert VERDICT(group_of("x")) == PLACE(group_of("x")) == JOINT(group_of("x")) == [None]


def test_reduces_to_one_and_the_same_where_all_verdicts_are_right(group_of):
    group = group_of(*said("2-3", "1-3", "3-3", "2-2"), columns={"span": (2, 3)})
    assert VERDICT(group) == [1] * 4 and JOINT(group) == PLACE(group)


def test_reduces_to_verdicts_without_errors_in_the_data(group_of):
    group = group_of(*said("right", "1-1", "right"), columns={"span": None})
    assert JOINT(group) == VERDICT(group)


@pytest.mark.parametrize("p", [0.2, 0.5, 1.0])
def test_the_theorem_on_variances(group_of, p):
    """G_joint = Bernoulli(p) G_place: all outcomes of verdict and interval, weighted, for the gradient of the interval's logits."""
    true, spans = (2, 3), list(itertools.combinations_with_replacement(range(1, 5), 2))
    logit = torch.linspace(-1, 1, len(spans), dtype=torch.float64)
    share = logit.softmax(0)
    outcomes = []
    for place, (a, b) in enumerate(spans):
        # A verifier that misses the error has said "right", and its interval is not read.
        texts = said(f"{a}-{b}", "right")
        joint, alone = JOINT(group_of(*texts, columns={"span": true})), PLACE(group_of(*texts, columns={"span": true}))
        direction = torch.nn.functional.one_hot(torch.tensor(place), len(spans)) - share
        for seen, chance in ((0, p), (1, 1 - p)):
            outcomes.append((share[place] * chance, joint[seen] * direction, alone[0] * direction))
    weight = torch.stack([w for w, _, _ in outcomes])[:, None]
    joint, alone = (torch.stack([o[i] for o in outcomes]) for i in (1, 2))
    mean_joint, mean = (weight * joint).sum(0), (weight * alone).sum(0)
    var_joint, var = ((weight * (g - m).square()).sum() for g, m in ((joint, mean_joint), (alone, mean)))
    torch.testing.assert_close(mean_joint, p * mean)
    torch.testing.assert_close(var_joint, p * var + p * (1 - p) * mean.square().sum())
    assert mean_joint.square().sum() / var_joint <= p * mean.square().sum() / var + 1e-12


def test_streams_are_balanced_and_the_copies_are_of_what_is_wrong():
    tasks = Proofreading(copies=True, size=20)
    drawn = [tasks[i] for i in range(len(tasks))]
    assert len(drawn) == 60 and len({task.id for task in drawn}) == 60
    for sound, flawed, copy in zip(drawn[::3], drawn[1::3], drawn[2::3], strict=True):
        assert [t.columns["sound"] for t in (sound, flawed, copy)] == [1, 0, 0]
        assert (flawed.prompt, flawed.answer) == (copy.prompt, copy.answer) and sound.answer == "right"
        assert [t.columns["stream"] for t in (sound, flawed, copy)] == ["verdict", "verdict", "place"]
        assert sound.columns["pair"] == copy.columns["pair"]


def test_what_is_called_wrong_is_wrong_and_nothing_else(group_of):
    """Every step is checked by itself: false inside the span, true outside."""
    tasks = Proofreading(size=30)
    for index in range(len(tasks)):
        task = tasks[index]
        steps = task.prompt.splitlines()[1].split()
        false = [
            n
            for n, step in enumerate(steps, 1)
            if WorkingSteps(measure="flawed")(group_of(f"<think>{step}</think>")) == [1]
        ]
        span = task.columns["span"]
        assert false == ([] if span is None else list(range(span[0], span[1] + 1)))
        assert task.answer == ("right" if span is None else f"{span[0]}-{span[1]}")


def test_demonstrations_are_right_without_noise_and_lose_their_thought_if_hidden(group_of):
    careful, careless = Proofreading(noise=0.0, size=20), Proofreading(noise=1.0, hidden=1.0, size=20)
    for index in range(40):
        task = careful[index]
        assert task.columns["completion"].endswith(f"</think><answer>{task.answer}</answer>")
        assert careless[index].columns["completion"].startswith("<answer>")
    with pytest.raises(ValueError, match="noise"):
        Proofreading(noise=2.0)


def test_statistics_are_of_one_stream(group_of):
    """Groups have one task, so one stream: what the other earns cannot move an advantage."""
    rewards = omniverifier_m1().rewards
    scored = []
    for number, stream in enumerate(("verdict", "place")):
        group = group_of(*said("2-3", "right", "2-2"), columns={"span": (2, 3), "stream": stream}, id=f"t{number}")
        outcome = score(replace(group, index=number), rewards)
        assert not isinstance(outcome, Drop)
        scored.append(outcome)
    assert [r.score for r in scored[0].rollouts] == pytest.approx([1.1, 0.1, 1.1])
    assert [r.score for r in scored[1].rollouts] == pytest.approx([1.1, 0.1, 0.6])
    both, alone = GroupNormalized()(pack(scored)), GroupNormalized()(pack(scored[1:]))
    assert torch.equal(both[3:], alone)
