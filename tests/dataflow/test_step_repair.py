"""Repairs: which rollouts, where they are cut, what they carry on; and the engine that brings the guide."""

from dataclasses import replace

import made
import pytest
import torch

from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Drop, Group, Task
from gimbal.workflows.guided import Guided
from gimbal.workflows.runner import Driven

GUIDE = "<think>2+3=5 5+4=9 9-1=8</think><answer>8</answer>"
TWO_RIGHT = "<think>2+3=5 5+4=9 9-1=7</think><answer>7</answer>"
ONE_RIGHT = "<think>2+3=5 5+4=8 8-1=7</think><answer>7</answer>"
ALL_RIGHT = "<think>2+3=5 5+4=9 9-1=8</think><answer>7</answer>"
NONE_RIGHT = "<think>2+3=6 6+4=10</think><answer>10</answer>"
WRONG_TERM = "<think>2+2=4 4+4=9</think><answer>9</answer>"
GUESS = "<answer>7</answer>"
TASK = Task(id="t", prompt="2+3?\n", answer="8", columns={"completion": [GUIDE]})


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def rollout(policy, text, sample, score=0.0, task=TASK):
    ids = [*policy.tokenizer.encode(text, add_special_tokens=False), policy.end_ids[0]]
    zero_S = torch.zeros(len(ids))
    return made.rollout(
        task=task,
        sample=sample,
        decisions=Tokens.row(policy.encode_task(task), ids),
        behavior_S=zero_S - sample,
        version_S=zero_S.long() + sample,
        text=text,
        score=score,
        scores={"reasoning": score},
    )


def group(policy, *texts, guide=1.0, task=TASK):
    own = [rollout(policy, text, i, float("<answer>8<" in text), task) for i, text in enumerate(texts, start=1)]
    return Group.of(0, task, (rollout(policy, GUIDE, 0, guide, task), *own))


def text_of(policy, one):
    return policy.decode(one.decisions.ids_NL[0, int(one.decisions.prompt_N[0]) :].tolist()).replace(" <", "<")


def test_by_hand(policy):
    before = group(policy, GUESS, ONE_RIGHT, TWO_RIGHT, GUIDE)
    after = StepRepair()(before)
    assert [r.sample for r in after.rollouts] == [1, 2, 3, 4]
    assert [r.scores["guided"] > 0 for r in after.rollouts] == [False, False, True, False]
    repaired = after.rollouts[2]
    assert repaired.text == GUIDE and text_of(policy, repaired) == text_of(policy, before.rollouts[0])
    assert repaired.score == 1 and repaired.scores["reasoning"] == 1
    kept = repaired.length - int(repaired.scores["guided"])
    assert kept == len("2+3=5 5+4=9 ") + 1 and repaired.length == before.rollouts[0].length
    assert repaired.behavior_S.tolist() == [-3.0] * kept + [0.0] * (repaired.length - kept)
    assert repaired.version_S.tolist() == [3] * kept + [0] * (repaired.length - kept)
    facts = pack([after]).facts
    assert facts["score/guided"].tolist() == [0, 0, repaired.length - kept, 0]


def test_the_largest_share_of_right_steps_comes_first(policy):
    def repaired(**options):
        return [
            r.scores["guided"] > 0
            for r in StepRepair(**options)(group(policy, ONE_RIGHT, NONE_RIGHT, TWO_RIGHT)).rollouts
        ]

    assert repaired() == [False, False, True]
    assert repaired(repairs=2) == [True, False, True]
    assert repaired(repairs=9, least=2) == [False, False, True]
    assert repaired(repairs=9, least=0) == [True, True, True]


def test_a_right_working_with_a_wrong_answer_gets_the_answer(policy):
    (one,) = StepRepair()(group(policy, ALL_RIGHT)).rollouts
    assert one.text == GUIDE and one.scores["guided"] == 5  # </think> <answer> 8 </answer> end


def test_what_does_not_join_is_left_alone(policy):
    (one,) = StepRepair()(group(policy, WRONG_TERM)).rollouts
    assert one.text == WRONG_TERM and one.scores["guided"] == 0 and one.score == 0
    (one,) = StepRepair()(group(policy, TWO_RIGHT, guide=0.0)).rollouts
    assert one.text == TWO_RIGHT


def test_reduces_to_the_group_without_repairs(policy):
    before = group(policy, TWO_RIGHT, GUESS)
    after = StepRepair(repairs=0)(before)
    own, kept = pack([before.keep(before.rollouts[1:])]), pack([after])
    assert torch.equal(own.reward_NS, kept.reward_NS) and torch.equal(own.decisions.ids_NL, kept.decisions.ids_NL)
    assert (kept.facts["score/guided"] == 0).all()
    unguided = replace(before, task=replace(TASK, columns={}))
    assert len(StepRepair()(unguided).rollouts) == 3


def test_reduces_to_whole_replacement_where_every_first_step_is_wrong(policy):
    for text in (NONE_RIGHT, GUESS):
        before = group(policy, text)
        (one,) = StepRepair(least=0)(before).rollouts
        assert one.text == GUIDE and one.scores["guided"] == one.length == before.rollouts[0].length
        assert torch.equal(one.decisions.ids_NL, before.rollouts[0].decisions.ids_NL)


def test_repaired_rollouts_have_the_turns_of_their_new_steps(policy):
    (one,) = StepTurns(separator=" ")(StepRepair()(group(policy, ONE_RIGHT))).rollouts
    assert int(one.turn_S.max()) == 3


def test_guides_alone_are_dropped(policy):
    assert StepRepair()(group(policy)) == Drop("only_guides")


def test_the_engine_brings_a_guide_where_there_is_one(policy):
    engine = Driven(engine=Native(precision="float32"), workflow=Guided()).start(policy)
    engine.load(3, policy.state_dict())
    sampling = Sampling(max_length=4)
    for number, task in enumerate((TASK, replace(TASK, id="u", columns={}))):
        for sample in range(2):
            engine.submit(Request(group=number, task=task, sample=sample, sampling=sampling, seed=0))
    assert engine.in_flight == 4 and engine.version == 3
    engine.cancel((1, 1))
    saved = engine.state_dict()
    drawn = finish(engine)
    assert sorted(drawn) == [(0, 0), (0, 1), (1, 0)] and drawn[0, 0].text == GUIDE
    assert drawn[0, 1].length <= 4 and drawn[1, 0].length <= 4 and (drawn[0, 0].version_S == 3).all()
    again = Driven(engine=Native(precision="float32"), workflow=Guided()).start(policy)
    again.load(3, policy.state_dict())
    again.load_state_dict(saved)
    assert {key: one.text for key, one in finish(again).items()} == {key: one.text for key, one in drawn.items()}


def finish(engine):
    return {key: finished.rollout for key, finished in drained(engine).items()}


def test_unfit_options_are_refused():
    for make in (lambda: StepRepair(least=-1), lambda: Guided(guides=-1)):
        with pytest.raises(ValueError, match="0 or above"):
            make()
