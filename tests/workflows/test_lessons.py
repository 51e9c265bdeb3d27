"""Lessons: who reads what, which store they leave, what their advantages compare, and that it continues to the bit."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY, plain
from speaker import Speaker

from gimbal import recipes
from gimbal.advantages import GroupNormalized, SeatCentered
from gimbal.config import Text
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.policies.token import Sampling
from gimbal.recipes.papers.agents.complementary_rl import complementary_rl
from gimbal.records import Group, Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.compose import check
from gimbal.workflows.case_memory import CaseMemory
from gimbal.workflows.lessons import ALONE, EXTRACTOR, GUIDED, Lessons
from gimbal.workflows.retrieval import CosineRetrieval, LearnedRetrieval
from gimbal.workflows.runner import Driven

ANSWER = ExactAnswer(opening="", closing="")
CASES = CaseMemory(reward=ANSWER, read=2, retrieval=CosineRetrieval(), template="{prompt}{answer}={score}\n")
ASKED = "{lesson}#{prompt}"  # what a guided attempt reads


def task(asked, answer="7", name=None):
    return Task(id=name or asked, prompt=asked, answer=answer)


def says(context):
    """The extractor sees lines of cases; the guided actor its lesson, which it repeats; alone there is nothing but the prompt."""
    if "\n" in context:
        return "8" if "=0" in context else "7"
    return context.split("#")[0] if "#" in context else "7"


def live_of(**fields):
    workflow = Lessons(**{"cases": CASES, "template": ASKED, "guided": 1.0} | fields)
    live = Driven(engine=Speaker(says=says), workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    return live


def group_of(live, one, number=0, samples=4):
    for sample in range(samples):
        live.submit(Request(group=number, task=one, sample=sample, sampling=Sampling(max_length=20), seed=7))
    return [item.outcome for _, item in sorted(drained(live).items())]


def test_the_extractor_reads_cases_and_the_guided_actor_its_lesson():
    live = live_of()
    (first,) = group_of(live, task("ab>"), samples=1)
    (second,) = group_of(live, task("ac>"), 1, samples=1)
    assert [row.role for row in first.rows] == [ALONE] and first.last.task == task("ab>")
    written, acted = second.rows
    assert (written.role, written.task.prompt, written.text) == (EXTRACTOR, "ab>7=1\nac>", "7")
    assert (acted.role, acted.task.prompt, acted.text) == (GUIDED, "7#ac>", "7")
    assert second.text == "7" and all(bool(row.mask_S.all()) for row in second.rows)
    assert live.memory["cases"] == (("ab>", "ab>", "7", 1.0), ("ac>", "ac>", "7", 1.0))


@pytest.mark.parametrize(
    ("share", "guided"), [(0.0, []), (0.25, [0]), (0.5, [0, 2]), (0.75, [0, 1, 2]), (1.0, [0, 1, 2, 3])]
)
def test_a_share_of_the_group_is_guided(share, guided):
    live = live_of(guided=share)
    group_of(live, task("ab>"), samples=1)
    roles = [episode.last.role for episode in group_of(live, task("ac>"), 1)]
    assert [at for at, role in enumerate(roles) if role == GUIDED] == guided and set(roles) <= {GUIDED, ALONE}


def test_none_guided_or_nothing_read_is_a_single_turn():
    for live in (live_of(guided=0.0), live_of(cases=replace(CASES, read=0))):
        for number in range(2):
            (episode,) = group_of(live, task(f"a{number}>"), number, samples=1)
            assert len(episode.rows) == 1 and episode.last.task.prompt == f"a{number}>"


def test_retrieval_learns_from_guided_attempts_alone():
    learned = replace(CASES, retrieval=LearnedRetrieval())
    live, other = (live_of(cases=learned, guided=share) for share in (0.0, 1.0))
    for number in range(3):
        for each in (live, other):
            group_of(each, task(f"a{number}>"), number, samples=1)
    assert live.memory["cases"] == other.memory["cases"]
    assert live.memory["weights"] == LearnedRetrieval()._first() != other.memory["weights"]


def batch_of(*scores):
    """A group of four, of which the first and the third are guided: two rows each, and five and six are theirs alone."""
    live = live_of(guided=0.5)
    group_of(live, task("ab>"), samples=1)
    group = Group(index=1, task=task("ac>"), episodes=tuple(group_of(live, task("ac>"), 1)))
    return pack([group.keep([replace(row, score=score) for row, score in zip(group.rollouts, scores, strict=True)])])


def test_guided_attempts_are_compared_with_guided_ones():
    batch = batch_of(1.0, 0.0, 0.0, 0.0)
    assert [batch.roles[place] for place in batch.role_N] == [EXTRACTOR, GUIDED, ALONE, EXTRACTOR, GUIDED, ALONE]
    assert batch.return_N.tolist() == [1, 1, 0, 0, 0, 0], "a lesson is worth what was done with it"
    for estimator, half in ((SeatCentered(), 0.5), (SeatCentered(scale=True), 0.5**0.5)):
        advantage_N = estimator.of_rows(batch)[:, 0]
        torch.testing.assert_close(advantage_N, torch.tensor([half, half, 0, -half, -half, 0]), atol=1e-5, rtol=0)


def test_a_baseline_over_both_rewards_any_lesson_where_lessons_help():
    batch = batch_of(1.0, 0.0, 1.0, 0.0)
    pooled_N, split_N = (part.of_rows(batch)[:, 0] for part in (GroupNormalized(), SeatCentered(scale=True)))
    assert all(pooled_N[[0, 1, 3, 4]] > 0.8) and not split_N.any()


def test_one_role_is_group_normalized():
    batch = replace(batch_of(1.0, 0.0, 0.0, 1.0), role_N=torch.zeros(6, dtype=torch.long), roles=("",))
    torch.testing.assert_close(SeatCentered(scale=True).of_rows(batch), GroupNormalized().of_rows(batch))


@pytest.mark.parametrize("at", (1, 3, 6))
def test_it_continues_from_its_state_to_the_bit(at):
    def begun():
        live = live_of(cases=replace(CASES, retrieval=LearnedRetrieval(), temperature=0.5), guided=0.5)
        for number in range(3):
            group_of(live, task(f"a{number}>"), number, samples=2)
        for sample in range(4):
            live.submit(Request(group=9, task=task("ax>"), sample=sample, sampling=Sampling(max_length=20), seed=7))
        return live

    whole = begun()
    alone = {key: plain(item.outcome) for key, item in drained(whole).items()}
    live, found = begun(), {}
    for _ in range(at):
        found |= {item.key: plain(item.outcome) for item in live.step()}
    other = live_of(cases=replace(CASES, retrieval=LearnedRetrieval(), temperature=0.5), guided=0.5)
    other.load_state_dict(live.state_dict())
    found |= {key: plain(item.outcome) for key, item in drained(other).items()}
    assert found == alone and other.memory == whole.memory


def test_a_chat_is_handed_over_as_a_chat():
    chat = replace(task("", name="c"), columns={"messages": [{"role": "user", "content": "ab>"}]})
    live = live_of()
    group_of(live, task("ab>"), samples=1)
    written, acted = group_of(live, chat, 1, samples=1)[0].rows
    assert written.task.columns["messages"] == [{"role": "user", "content": "ab>7=1\nab>"}]
    assert acted.task.columns["messages"] == [{"role": "user", "content": f"{written.text}#user: ab>"}]


@pytest.mark.parametrize(
    ("fields", "reason"), [({"guided": 1.5}, "0 to 1"), ({"template": "{prompt}"}, "must have {lesson}")]
)
def test_what_makes_no_sense_is_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        Lessons(**fields)


def test_as_a_user_types_it():
    typed = Text("Lessons(cases=CaseMemory(reward=ReasoningScore()),stop=['.'])")
    run = recipes.load("grpo", {"workflow": typed, "advantage": Text("SeatCentered(scale=true)")})
    assert run.workflow.stop == (".",) and run.advantage.scale
    check(run)
    check(complementary_rl())
    with pytest.raises(ValueError, match="CaseMemory goes by ExactAnswer"):
        check(recipes.load("grpo", {"workflow": Text("Lessons()")}))


@pytest.mark.parametrize(("context", "lesson"), [(512, "77777777"), (30, "777777"), (24, None)])
def test_a_lesson_is_as_long_as_there_is_room_for_it(monkeypatch, context, lesson):
    monkeypatch.setattr(POLICY, "context", context, raising=False)
    live = Driven(
        engine=Speaker(says=lambda context: "7" * 8 if "\n" in context else "7"),
        workflow=Lessons(cases=CASES, template=ASKED, guided=1.0),
    ).start(POLICY)
    live.load(0, POLICY.state_dict())
    group_of(live, task("ab>"), samples=1)
    (episode,) = group_of(live, task("ac>"), 1, samples=1)
    if lesson is None:
        assert [row.role for row in episode.rows] == [ALONE]
        return
    written, acted = episode.rows
    assert written.text == lesson and acted.task.prompt == f"{lesson}#ac>"
    assert written.stop == ("stop" if context == 512 else "length")
