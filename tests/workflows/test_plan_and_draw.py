"""A plan in words and a picture by it: which class is drawn, what the rows are, and how they are sampled."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import terms
from gimbal.environments.digit_sums import DigitSums
from gimbal.learning.kinds import OtherKind
from gimbal.objectives import ClippedStep
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import NO_LABEL, Paths, PathSampling
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Group
from gimbal.rewards.digits import DigitClass
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.plan_and_draw import PlanAndDraw
from gimbal.workflows.runner import Driven

POLICY, FLOW = CausalLM().load(), Denoiser().load()
KIND = OtherKind(
    policy=Denoiser(), engine=Denoising(slots=8), sampling=PathSampling(max_length=3), objective=ClippedStep()
)
TASK = DigitSums(seed=1)[0]


def drawn(workflow=PlanAndDraw(), samples=3, task=TASK, **sampling):
    spec = Driven(engine=Native(slots=4, precision="float32"), workflow=workflow)
    engine = replace(spec, owners={"painter": "painter"}, kinds={"painter": KIND}).start(POLICY)
    engine.load(0, POLICY.state_dict())
    engine.separate["painter"].load(0, FLOW.state_dict())
    for sample in range(samples):
        how = Sampling(**{"max_length": 40, **sampling})
        engine.submit(Request(group=0, task=task, sample=sample, sampling=how, seed=0))
    return [item.outcome for _, item in sorted(drained(engine).items())]


def test_the_painter_draws_what_the_words_name_and_both_rows_are_one_episode():
    for episode in drawn(samples=4):
        words, picture = episode.rows
        assert (words.role, picture.role) == ("planner", "painter") and (words.row, picture.row) == (0, 1)
        assert isinstance(words.decisions, Tokens) and isinstance(picture.decisions, Paths)
        named = words.text.rpartition("<answer>")[2].removesuffix("</answer>")
        wanted = int(named) if named.isdecimal() and int(named) < 10 else NO_LABEL
        assert int(picture.decisions.label_N[0]) == wanted and words.text.endswith("</answer>")
        assert picture.task == TASK and picture.text == words.text  # judged by its task, not by what was planned
        assert picture.length == 3 and picture.mask_S.tolist() == [True, True, False]
        assert picture.scores["named"] == (wanted != NO_LABEL) and "named" not in words.scores


def test_words_that_name_no_class_draw_none_in_particular():
    classes = [int(one.rows[1].decisions.label_N[0]) for one in drawn(PlanAndDraw(plan="(never)"))]
    assert classes == [NO_LABEL] * 3
    assert [one.rows[1].scores["named"] for one in drawn(PlanAndDraw(plan="(never)"))] == [0.0] * 3
    above = drawn(PlanAndDraw(plan=r"<answer>(.+)</answer>", classes=1), samples=6)
    assert {int(one.rows[1].decisions.label_N[0]) for one in above} <= {NO_LABEL, 0}


def test_a_greedy_episode_is_greedy_in_both_kinds():
    words, picture = drawn(samples=1, temperature=0.0)[0].rows
    assert not picture.mask_S.any() and not picture.decisions.std_NS.any()
    assert words.text == drawn(samples=1, temperature=0.0)[0].text
    assert picture.sampling == replace(KIND.sampling, temperature=0.0)


def test_rewards_of_pictures_judge_the_picture_by_the_task_and_rewards_of_texts_the_words():
    group = Group(index=0, task=TASK, episodes=tuple(drawn(samples=4)))
    flat = torch.stack([e.rows[1].decisions.sample_ND[0].flatten() for e in group.episodes])
    label = torch.full((4,), TASK.columns["label"])
    assert DigitClass()(group) == pytest.approx(DigitClass().of_samples(flat, label).tolist())
    right = [f"<answer>{TASK.answer}</answer>" in e.rows[0].text for e in group.episodes]
    assert ExactAnswer()(group) == [float(one) for one in right] and any(right) and not all(right)


def test_the_sums_of_digits_are_right_and_each_digit_is_asked_for():
    tasks = [DigitSums(terms=4, seed=3)[n] for n in range(60)]
    for task in tasks:
        sum_ = task.prompt.partition(": ")[2].removesuffix(" =\n")
        assert sum(terms(sum_)) == task.columns["label"] == int(task.answer)
        assert len(terms(sum_)) == 4 and all(10 <= abs(term) <= 99 for term in terms(sum_))
    assert {task.answer for task in tasks} == set("0123456789")
    assert DigitSums(seed=4)[0] != DigitSums(seed=3)[0] == DigitSums(seed=3)[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: PlanAndDraw(plan="("), "no regular expression"),
        (lambda: PlanAndDraw(plan="a+"), "must have a group"),
        (lambda: PlanAndDraw(classes=0), "must be at least 1"),
        (lambda: DigitSums(terms=1), "must be from 2 to 6"),
        (lambda: DigitSums(prompt="add"), "must have a place for the sum"),
        (lambda: DigitSums(size=0), "must be at least 1"),
        (lambda: replace(KIND, weight=-1.0), "must be a number from 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()
