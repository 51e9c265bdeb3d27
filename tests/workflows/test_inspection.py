"""An inspector of a frozen solver: what each is asked, what a verdict is worth, and where the residual says more than the outcome."""

from dataclasses import dataclass, replace

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.advantages import GroupCentered
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.policies.base import AbstractPolicySpec
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Group, Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import Role
from gimbal.workflows.inspection import Inspection
from gimbal.workflows.runner import Driven

TASK = Task(id="s", prompt="n?\n", answer="3")


@dataclass(frozen=True, kw_only=True)
class Standing(AbstractPolicySpec):
    """The policy that is there."""

    def load(self, seed=0):
        return POLICY

    def at(self, directory):
        return self


def inspected(tries, says, asked=None, task=TASK, **changes):
    """The episode of a solver that says one of ``tries`` after the other, and of an inspector that says ``says`` of each answer."""
    tries, heard = iter(tries), [] if asked is None else asked

    def solves(context):
        heard.append(context)
        return next(tries)

    own = Inspection(
        solver=Role(policy=Standing(), engine=Speaker(says=solves)),
        reward=ExactAnswer(opening="", closing=""),
        inspect="{prompt}{answer}!",
        redo="^r",
        again="{prompt}{answer}{said}|",
    )
    live = Driven(engine=Speaker(says=says), workflow=replace(own, **changes)).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=20), seed=7))
    (item,) = drained(live).values()
    return item.outcome


@pytest.mark.parametrize(
    ("tries", "says", "worth", "reached"),
    [
        (["3"], "a", 0, 1), (["5"], "a", 0, 0), (["5", "3"], "r", 1, 1), (["3", "5"], "r", -1, 0), (["3", "3"], "r", 0, 1),
        (["5", "4"], "r", 0, 0),
    ],
)  # fmt: skip
def test_what_a_verdict_is_worth(tries, says, worth, reached):
    asked = []
    episode = inspected(tries, lambda context: says, asked)
    assert asked == ["n?\n", f"n?\n{tries[0]}r|"][: len(tries)]
    (row,) = episode.rows
    assert row.task.prompt == f"n?\n{tries[0]}!" and row.text == says and row.mask_S.all()
    assert (episode.score, row.scores["with"], row.scores["without"]) == (worth, reached, float(tries[0] == "3"))
    assert inspected(tries, lambda context: says, residual=False).score == reached


def test_an_inspector_says_at_most_so_many_tokens():
    (row,) = inspected(["5", "3"], lambda context: "rrr", most=1).rows
    assert row.length == 1 and row.stop == "stop" and row.score == 1


def advantages(firsts, residual):
    """Of one group, in which the first two inspectors accept, and the others have the answer mended, and spoilt."""
    says = ("a", "a", "r", "r")
    episodes = [
        inspected([first, second], lambda context, one=one: one, residual=residual).map(
            lambda row, at=at: replace(row, sample=at)
        )
        for at, (first, second, one) in enumerate(zip(firsts, "--35", says, strict=True))
    ]
    batch = pack([Group(index=0, task=TASK, episodes=tuple(episodes))])
    return GroupCentered()(batch)[:, 0]


@pytest.mark.parametrize("score", ["3", "5"])
def test_answers_of_one_score_give_both_rewards_one_advantage(score):
    torch.testing.assert_close(advantages([score] * 4, True), advantages([score] * 4, False))


def test_where_answers_differ_the_residual_takes_out_who_had_a_right_one():
    firsts = ["3", "5", "5", "3"]
    torch.testing.assert_close(advantages(firsts, True), torch.tensor([0.0, 0, 1, -1]))
    torch.testing.assert_close(advantages(firsts, False), torch.tensor([0.5, -0.5, 0.5, -0.5]))


def test_an_answer_without_a_score_drops_the_attempt():
    dropped = inspected(["3"], lambda context: "ab", task=replace(TASK, answer=None))
    assert isinstance(dropped, Drop) and dropped.reason == "unscored" and dropped.drawn == 3


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"redo": "("}, "no regular expression"),
        ({"inspect": "{prompt}"}, "never reads it"),
        ({"most": 0}, "most is 0"),
    ],
)
def test_an_inspection_that_cannot_be_is_refused(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        Inspection(**wrong)
