"""A memory of cases: what is read and stored, what Q learns, by hand, and that it continues to the bit."""

import math
from dataclasses import replace

import pytest
from dice import POLICY, plain
from speaker import Speaker

from gimbal import recipes
from gimbal.config import Text
from gimbal.engines.base import Request, drained
from gimbal.environments.cases import CaseTurns, Families, with_cases
from gimbal.policies.token import Sampling
from gimbal.records import Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.compose import check
from gimbal.workflows.base import Attempt
from gimbal.workflows.case_memory import CaseMemory
from gimbal.workflows.retrieval import Case, CosineRetrieval, LearnedRetrieval, cosine
from gimbal.workflows.runner import Driven

ANSWER = ExactAnswer(opening="", closing="")
PLAIN = {"reward": ANSWER, "read": 2, "retrieval": CosineRetrieval()}


def task(asked, answer="7", name=None):
    return Task(id=name or asked, prompt=asked, answer=answer)


def live_of(says, **fields):
    live = Driven(engine=Speaker(says=says), workflow=CaseMemory(**PLAIN | fields)).start(POLICY)
    live.load(0, POLICY.state_dict())
    return live


def request(one, sample=0, group=0):
    return Request(group=group, task=one, sample=sample, sampling=Sampling(max_length=20), seed=7)


def asked(live, *tasks):
    """One after the other; returns the rows."""
    rows = []
    for number, one in enumerate(tasks):
        live.submit(request(one, group=number))
        (item,) = drained(live).values()
        rows.append(item.outcome.last)
    return rows


def attempt(memory, one, sample=0, seed=7):
    return Attempt(group=0, task=one, samples=(sample,), sampling=Sampling(), seed=seed, memory=memory)


def held(*cases):
    return {"cases": tuple(tuple(case) for case in cases), "weights": ()}


def test_an_attempt_reads_the_nearest_cases_the_best_one_last():
    rows = asked(live_of(lambda context: "7"), task("abc>"), task("xyz>"), task("abd>"), task("abe>"))
    prompts = [row.task.prompt for row in rows]
    assert prompts == ["abc>", "abc>7\nxyz>", "xyz>7\nabc>7\nabd>", "abc>7\nabd>7\nabe>"]
    assert all(row.text == "7" and bool(row.mask_S.all()) for row in rows)


def test_failures_are_stored_with_their_score_and_the_oldest_leave():
    live = live_of(lambda context: "7", capacity=2)
    asked(live, task("a>"), task("b>", answer="8"), task("c>"))
    assert live.memory["cases"] == (("b>", "b>", "7", 0.0), ("c>", "c>", "7", 1.0))


def test_a_task_does_not_read_its_own_cases():
    rows = asked(live_of(lambda context: "7"), task("a>"), task("a>"), task("a>", name="other"))
    assert [row.task.prompt for row in rows] == ["a>", "a>", "a>7\na>7\na>"]


def test_one_at_a_time_reads_what_the_one_before_left():
    def prompts(**fields):
        live = live_of(lambda context: "7", **fields)
        for number in range(3):
            live.submit(request(task(f"a{number}>"), group=number))
        return [item.outcome.last.task.prompt for _, item in sorted(drained(live).items())]

    assert prompts() == ["a0>", "a1>", "a2>"]
    assert prompts(at_once=1) == ["a0>", "a0>7\na1>", "a0>7\na1>7\na2>"]


def test_an_empty_memory_or_none_read_is_a_single_turn():
    one, other = live_of(lambda context: "7"), live_of(lambda context: "7", read=0)
    assert asked(one, task("a>"))[0].task == task("a>")
    assert [row.task.prompt for row in asked(other, task("a>"), task("b>"))] == ["a>", "b>"]


def test_in_a_chat_the_cases_stand_in_the_first_message():
    chat = replace(task("", name="c"), columns={"messages": [{"role": "user", "content": "ab>"}]})
    row = asked(live_of(lambda context: "7"), task("ab>"), chat)[1]
    assert row.task.columns["messages"] == [{"role": "user", "content": "ab>7\nab>"}]
    odd = replace(chat, columns={"messages": [{"role": "user", "content": [{"type": "image"}]}]})
    for refused in (odd, replace(task("a"), columns={"prompt_ids": [1]})):
        with pytest.raises(ValueError, match="puts text before a prompt"):
            CaseMemory().accepts(refused)


def test_cosine_by_hand():
    # a, b, ab against a, c, ac: one of three is shared.
    assert cosine("ab", "ac") == pytest.approx(1 / 3) and cosine("ab", "ab") == pytest.approx(1)
    assert cosine("", "ab") == cosine("ab", "") == 0


def test_one_step_on_the_cross_entropy_by_hand():
    """The slope against finite differences, of one read case of each outcome."""
    right, wrong = Case("t", "ab", "7", 1.0), Case("u", "ac", "7", 0.0)
    q = LearnedRetrieval(rate=1.0, places=2)
    weights = tuple(0.1 * at for at in range(8))
    for case in (right, wrong):
        for score in (0.0, 1.0, 3.0):

            def loss(now, case=case, score=score):
                value = q.values(now, "ab", [case])[0]
                r = min(score, 1.0)
                return -r * math.log(value) - (1 - r) * math.log(1 - value)

            moved = q.learned(weights, "ab", [case], score)
            for at in range(8):
                up, down = (
                    tuple(x + step * (at == place) for place, x in enumerate(weights)) for step in (1e-6, -1e-6)
                )
                assert moved[at] - weights[at] == pytest.approx(-(loss(up) - loss(down)) / 2e-6, abs=1e-6)


def test_rate_0_is_the_cosine():
    cases = [Case(str(n), text, "7", float(n % 2)) for n, text in enumerate(("abcd", "abxx", "zzzz", "abce"))]
    one, still = CaseMemory(**PLAIN), CaseMemory(**PLAIN | {"retrieval": LearnedRetrieval(rate=0.0)})
    asks = attempt(held(*cases), task("abcf"))
    assert one.chosen(asks) == still.chosen(asks) and one.chosen(asks)[-1].asked == "abce"
    assert LearnedRetrieval(rate=0.0).learned((), "a", cases, 1.0) == LearnedRetrieval()._first()


def test_temperature_infinity_is_uniform_and_a_finite_one_follows_the_softmax():
    cases = [Case(str(n), text, "7", 1.0) for n, text in enumerate(("ab", "zz", "yy", "xx"))]

    def shares(temperature):
        workflow = CaseMemory(**PLAIN | {"read": 1, "temperature": temperature})
        drawn = [workflow.chosen(attempt(held(*cases), task("ab"), seed=seed))[0].task for seed in range(3000)]
        return [drawn.count(case.task) / 3000 for case in cases]

    assert shares(math.inf) == pytest.approx([0.25] * 4, abs=0.03)
    e = math.exp(1 / 0.5)
    assert shares(0.5) == pytest.approx([e / (e + 3), *[1 / (e + 3)] * 3], abs=0.03)


def test_q_learns_which_letters_matter():
    """A case is of use if the last letter but one is alike, whatever the topic."""
    tasks = Families(families=6, misleading=0.3)
    cases = [Case(str(n), tasks[n].prompt, tasks[n].answer, 1.0) for n in range(60)]
    q, weights = LearnedRetrieval(rate=0.3), ()
    for n in range(60, 260):
        for case in cases[n % 60 :: 20]:
            weights = q.learned(weights, tasks[n].prompt, [case], float(case.answer == tasks[n].answer))
    found = []
    for n in range(300, 340):
        values = q.values(weights, tasks[n].prompt, cases)
        found.append(cases[values.index(max(values))].answer == tasks[n].answer)
    assert sum(found) >= 38


@pytest.mark.parametrize("at", (1, 3, 6))
def test_it_continues_from_its_state_to_the_bit(at):
    def says(context):
        return str(len(context) % 10)

    fields = {"retrieval": LearnedRetrieval(), "temperature": 0.5}

    def begun():
        live = live_of(says, **fields)
        asked(live, *(Families()[n] for n in range(6)))
        for sample in range(3):
            live.submit(request(Families()[9], sample=sample, group=9))
        return live

    alone_live = begun()
    alone = {key: plain(item.outcome) for key, item in drained(alone_live).items()}
    live, found = begun(), {}
    for _ in range(at):
        found |= {item.key: plain(item.outcome) for item in live.step()}
    other = live_of(says, **fields)
    other.load_state_dict(live.state_dict())
    found |= {key: plain(item.outcome) for key, item in drained(other).items()}
    assert found == alone and other.memory == alone_live.memory


def test_families_by_hand():
    tasks = [Families(misleading=0.3)[n] for n in range(400)]
    digit = {one.columns["family"]: one.answer for one in tasks}
    letter = {one.columns["family"]: one.prompt[4] for one in tasks}
    assert len(digit) == len(set(letter.values())) == 20
    assert all(
        (one.answer, one.prompt[4]) == (digit[one.columns["family"]], letter[one.columns["family"]]) for one in tasks
    )
    topics = {}
    for one in tasks:
        topics.setdefault(one.columns["family"], []).append(one.prompt[:4])
    usual = sum(max(map(own.count, own)) for own in topics.values()) / 400
    assert usual == pytest.approx(0.7, abs=0.07)
    assert with_cases("c>", [("a>", "1"), ("b>", "2")]) == "a>1\nb>2\nc>"
    turn = CaseTurns()[3]
    assert turn.columns["completion"] in turn.prompt or turn.prompt.count(">") == 1
    with pytest.raises(ValueError, match="2 to 52 families"):
        Families(families=1)


def test_families_with_a_period_get_new_rules():
    """Within a period as without one; after it another digit for most, so that weights cannot hold them."""
    tasks = Families(families=6, period=300)
    digits = [
        {
            n: {tasks[at].answer for at in range(300 * n, 300 * n + 300) if tasks[at].columns["family"] == f}
            for n in range(2)
        }
        for f in range(6)
    ]
    assert all(len(own[n]) == 1 for own in digits for n in range(2)) and sum(own[0] != own[1] for own in digits) >= 3
    assert Families(period=10**6, seed=0)[0].prompt != Families(seed=0)[0].prompt
    with pytest.raises(ValueError, match="or 0 for rules that stay"):
        Families(period=-1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"read": -1}, "the others 0 or above"),
        ({"capacity": 0}, "a capacity of 1 or more"),
        ({"temperature": math.nan}, "the others 0 or above"),
        ({"template": "{prompt}"}, "must have {answer}"),
        ({"at_once": 0}, "1 or more, or none"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        CaseMemory(**PLAIN | fields)
    with pytest.raises(ValueError, match="a finite rate"):
        LearnedRetrieval(rate=math.inf)


def test_as_a_user_types_it():
    typed = Text("CaseMemory(retrieval=CosineRetrieval(),read=2,reward=ReasoningScore())")
    run = recipes.load("grpo", {"workflow": typed})
    assert run.workflow.retrieval == CosineRetrieval() and run.workflow.read == 2
    check(run)
    with pytest.raises(ValueError, match="CaseMemory goes by ExactAnswer"):
        check(recipes.load("grpo", {"workflow": Text("CaseMemory()")}))


def test_cases_that_there_is_no_room_for_are_not_read_and_q_learns_of_those_that_were(monkeypatch):
    long = Case("long", "q" * 60 + ">", "7", 1.0)
    near = Case("near", "ac>", "7", 1.0)
    monkeypatch.setattr(POLICY, "context", 60, raising=False)
    for cases, read in (((long, near), [near]), ((long,), []), ((near,), [near])):
        live = live_of(lambda context: "7", retrieval=LearnedRetrieval())
        live.memory = held(*cases)
        live.submit(request(task("ab>")))
        (item,) = drained(live).values()
        assert item.outcome.last.task.prompt == "".join(f"{case.asked}7\n" for case in read) + "ab>"
        wanted = LearnedRetrieval().learned((), "ab>", read, 1.0) if read else LearnedRetrieval()._first()
        assert live.memory["weights"] == wanted
