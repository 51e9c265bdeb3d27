"""A belief that one role writes and another acts on: what each sees, what an episode earns, and what ends it."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.engines.base import Request, drained
from gimbal.environments.recall import Recall, Recalling
from gimbal.environments.tools import Calculator
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Task
from gimbal.workflows.belief_state import ACTOR, BELIEVER, BeliefState
from gimbal.workflows.runner import Driven

LINES = ["a1b2\n", "c3d4\n"]
STREAM = Task(id="s", prompt="ad?\n", answer="14", columns={"lines": LINES})
PLAIN = BeliefState(believe="{prompt}{belief}|{seen}", act="{prompt}{belief}!{seen}", overlap=0)


def outcome(says, task=STREAM, workflow=PLAIN):
    live = Driven(engine=Speaker(says=says), workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=20), seed=7))
    (item,) = drained(live).values()
    return item.outcome


def keeps(context):
    """Believes what it believed and what it sees of a and d; answers that."""
    known = context.replace("\n", "").partition("?")[2]
    values = "".join(two[1] for two in ("a1", "d4") if two in known) or ""
    if "!" in known:
        return known.partition("!")[0]
    return "".join(dict.fromkeys(known.partition("|")[0] + values))


def test_each_role_sees_the_belief_and_the_newest_observation_and_no_more():
    episode = outcome(keeps)
    assert [row.role for row in episode.rows] == [BELIEVER, ACTOR] * 3
    assert [row.task.prompt for row in episode.rows] == [
        "ad?\n|a1b2\n", "ad?\n1!a1b2\n", "ad?\n1|c3d4\n", "ad?\n14!c3d4\n", "ad?\n14|=", "ad?\n14!=",
    ]  # fmt: skip
    assert episode.earned == 1 and [float(row.reward_S.sum()) for row in episode.rows] == [0, 0, 0, 0, 0, 1]
    assert episode.rows[-1].stop == "terminated" and len(episode.acts) == 3


def test_a_believer_that_writes_nothing_leaves_an_actor_without_memory():
    episode = outcome(lambda context: keeps(context) if "!" in context else "")
    assert episode.rows[-1].task.prompt == "ad?\n!=" and episode.earned == 0


def test_a_believer_that_copies_what_it_saw_leaves_an_agent_that_sees_the_history():
    episode = outcome(lambda context: "14" if "!" in context else context.partition("\n")[2].replace("|", "").strip())
    assert episode.rows[-1].task.prompt.startswith("ad?\na1b2c3d4=") and episode.earned == 1


def test_limits_and_failures(monkeypatch):
    short = outcome(keeps, workflow=replace(PLAIN, answers=0))
    assert len(short.rows) == 2 and short.rows[-1].stop == "truncated"
    endless = outcome(lambda context: "x" * 40 if "!" in context else "")
    assert (
        len(endless.rows) == 2
        and endless.rows[-1].stop == "length"
        and torch.equal(endless.rows[-1].mask_S.sum(), torch.tensor(20))
    )
    assert isinstance(outcome(keeps, replace(STREAM, columns={})), Drop)

    def breaks(self, action):
        raise OSError("the lines are gone")

    monkeypatch.setattr(Recalling, "step", breaks)
    failed = outcome(keeps)
    assert "the lines are gone" in failed.error and failed.rows[-1].stop == "error"


def test_in_a_chat_each_role_is_asked_in_one_message():
    chat = replace(STREAM, prompt="", columns={"lines": LINES, "messages": [{"role": "user", "content": "ad?"}]})
    believer, actor = outcome(lambda context: "x", chat, BeliefState(answers=0, overlap=0)).rows
    (asked,), (acts,) = (row.task.columns["messages"] for row in (believer, actor))
    assert "What you believed:\n\n\nWhat you see now:\na1b2" in asked["content"] and "ruled out" in asked["content"]
    assert "What you believe:\nx\n" in acts["content"]


def test_what_never_reaches_who_acts_is_refused():
    for wrong in ({"believe": "{belief}"}, {"act": "{seen}"}):
        with pytest.raises(ValueError, match="never reaches who acts"):
            BeliefState(**wrong)
    with pytest.raises(ValueError, match="Calculator, which is called in the middle"):
        BeliefState(tool=Calculator())
    with pytest.raises(ValueError, match="answers=-1"):
        BeliefState(answers=-1)
    assert isinstance(BeliefState().tool, Recall)
