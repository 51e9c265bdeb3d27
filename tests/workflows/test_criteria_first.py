"""CE-RM: two stages of one group, the rewards of both by hand, and the three conditions they are compared in."""

import copy
from dataclasses import replace

import made
import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.recipes.papers.rewards.ce_rm import ce_rm
from gimbal.records import Drop, Episode, Group, Task
from gimbal.rewards.criteria_judge import CriteriaJudge
from gimbal.rewards.scoring import score
from gimbal.runtime import compose
from gimbal.workflows.criteria_first import CriteriaFirst
from gimbal.workflows.runner import Driven

TASK = Task(id="t", prompt="1 + 2 =\n", columns={"completion": ["<answer>3</answer>", "<answer>4</answer>"]})
BY_CONDITION = Stratified(strata="score/condition", alpha=1.0)


def judged(criteria, *scores):
    """A group of ``criteria`` lists and, as the engine deals them, judgements with these scores."""
    rollouts = []
    for sample in range(criteria + len(scores)):
        place, columns, text = sample - criteria, {}, "criteria"
        if place >= 0:
            columns = {"criterion": place % criteria, "side": ("better", "worse")[place // criteria % 2]}
            text = f"<answer>{scores[place]}</answer>"
        rollouts.append(
            made.rollout(
                task=replace(TASK, columns=columns), sample=sample, decisions=Tokens.row([1], [2, 3]), text=text
            )
        )
    return Group.of(0, TASK, rollouts)


def test_by_hand():
    # Two lists; better 7, 5 and worse 6, 5 by each list first, then better 9, x and worse 8, 1.
    group = judged(2, 7, 5, 6, 5, 9, "x", 8, 1)
    # By list 0: better 7, 9 against worse 6, 8. By list 1: better 5 and no score against worse 5, 1.
    assert CriteriaJudge()(group) == [3 / 4, 1 / 4, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 0.5, 1.0]
    assert CriteriaJudge(measure="condition")(group) == [0, 0, 1, 1, 2, 2, 1, 1, 2, 2]


def test_equal_scores_are_no_order_and_lone_criteria_earn_0():
    assert CriteriaJudge()(judged(1, 5, 5)) == [0, 0, 0]
    assert CriteriaJudge()(judged(3)) == [0, 0, 0] and CriteriaJudge()(judged(1, 5)) == [0, 0]


@pytest.mark.parametrize("text", ["", "nan", "inf", "-", "five"])
def test_what_is_no_number_earns_0(text):
    assert CriteriaJudge()(judged(1, text, 1)) == [0, 0, 0]


def scored(group):
    return score(group, ce_rm().rewards)


def test_three_conditions_are_normalised_apart():
    batch = pack([scored(judged(2, 7, 5, 6, 5, 9, "x", 8, 1))])
    advantage_N = BY_CONDITION(batch)[:, 0]
    for rows in ([0, 1], [2, 3, 6, 7], [4, 5, 8, 9]):
        alone = torch.tensor([0.75, 0.25, 0.5, 0.5, 1.0, 0.0, 1.0, 0.0, 0.5, 1.0])[rows]
        torch.testing.assert_close(advantage_N[rows], (alone - alone.mean()) / (alone.std() + 1e-6))


def test_reduces_to_a_pointwise_judge_with_one_list_of_criteria():
    """The one list has nobody to be compared with; what is left are two groups of judgements."""
    group = judged(1, 7, 6, 5, 8)
    batch = pack([scored(group)])
    advantage = BY_CONDITION(batch)
    assert advantage[0].abs().max() == 0
    better = group.keep(tuple(group.rollouts[i] for i in (1, 3)))
    rewards = [CriteriaJudge()(group)[i] for i in (1, 3)]
    alone = pack([better.keep(tuple(replace(r, score=v) for r, v in zip(better.rollouts, rewards, strict=True)))])
    torch.testing.assert_close(advantage[[1, 3]], GroupNormalized()(alone), atol=1e-6, rtol=0)


def engine(criteria=2):
    policy = CausalLM().load(0)
    sampler = Native(slots=4, precision="float32")
    made = Driven(engine=sampler, workflow=CriteriaFirst(criteria=criteria)).start(policy)
    made.load(0, policy.state_dict())
    return made


def request(sample, group=0):
    return Request(group=group, task=TASK, sample=sample, sampling=Sampling(max_length=4), seed=0)


def drawn(made):
    return {key: item.rollout for key, item in drained(made).items() if isinstance(item.outcome, Episode)}


def test_every_request_comes_out_once_and_judgements_hold_their_criteria(single_thread):
    made = engine()
    for sample in range(6):
        made.submit(request(sample))
    assert made.in_flight == 6
    found = drawn(made)
    assert sorted(found) == [(0, sample) for sample in range(6)] and not made.flows
    for sample in range(2, 6):
        rollout, number, side = found[0, sample], sample % 2, (sample - 2) // 2
        response = TASK.columns["completion"][side]
        assert rollout.task.prompt == f"1 + 2 =\n{found[0, number].text}\n{response}\n" and rollout.sample == sample
        assert rollout.task.columns["side"] == ("better", "worse")[side] and rollout.task.columns["criterion"] == number


def test_reduces_to_the_sampler_without_judgements(single_thread):
    made, plain = engine(), engine().inner
    for one in (made, plain):
        one.submit(request(0))
        one.submit(request(1))
    assert {k: r.text for k, r in drawn(made).items()} == {k: r.text for k, r in drawn(plain).items()}


def test_tasks_without_responses_and_canaries_are_answered_as_they_are(single_thread):
    made = engine(criteria=1)
    made.submit(replace(request(3), task=replace(TASK, columns={})))
    made.submit(request(3, group=-4))
    assert {rollout.task.prompt for rollout in drawn(made).values()} == {TASK.prompt} and not made.flows


def test_it_goes_on_to_the_same_bits(single_thread):
    made, other = engine(), engine()
    for sample in range(6):
        made.submit(request(sample))
    made.step()
    other.load_state_dict(copy.deepcopy(made.state_dict()))
    assert {k: r.text for k, r in drawn(made).items()} == {k: r.text for k, r in drawn(other).items()}


def test_cancelled_ones_do_not_come_out(single_thread):
    made = engine()
    for sample in range(6):
        made.submit(request(sample))
    made.cancel((0, 5))
    made.step()
    made.cancel((0, 0))
    assert sorted(drawn(made)) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_judgements_whose_criteria_were_lost_are_counted(single_thread):
    made = engine()
    made.submit(request(1))
    made.submit(request(2))
    made.submit(request(3))
    found = drained(made)
    assert found[0, 2].outcome == Drop("no_criteria") and isinstance(found[0, 3].outcome, Episode)
    with pytest.raises(ValueError, match="criteria"):
        CriteriaFirst(criteria=0)


def test_the_recipe_trains_both_stages(single_thread):
    from gimbal.runtime.local import Trainer

    run = ce_rm()
    run = replace(
        run, prompts_per_step=1, num_generations=5, threads=1, sampling=Sampling(max_length=8), steps=1, max_staleness=0,
        workflow=replace(run.workflow, criteria=1),
    )  # fmt: skip
    assert compose.check(run) is not None
    trainer = Trainer(run)
    _, groups, batch = trainer.advance()
    assert [r.task.columns.get("side") for r in groups[0].rollouts] == [None, "better", "worse", "better", "worse"]
    assert batch.mask_NS.any(-1).all()
