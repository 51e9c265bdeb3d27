"""One runner for all workflows: what they may ask, that a state goes on from any call, and that no tool holds up what it is not for."""

import pickle
import sys
import threading
from dataclasses import dataclass, field, replace
from time import sleep

import pytest
import torch
from dice import POLICY, Dice, ask, ids, plain

from gimbal.engines.base import drained
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.environments.games import AbstractGame
from gimbal.environments.tools import AbstractTool, Calculator
from gimbal.ops import deadline
from gimbal.policies.base import AbstractPolicySpec
from gimbal.records import Drop, Episode, Part, Task
from gimbal.rewards.pattern import Pattern
from gimbal.runtime.checkpoint import FORMAT
from gimbal.runtime.checkpoint import load as load_checkpoint
from gimbal.workflows.acting import Seat
from gimbal.workflows.base import AbstractWorkflow, Act, Ask, Draw, Fork, Role, Stop
from gimbal.workflows.belief_state import BeliefState
from gimbal.workflows.branching import Branching
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.edited_context import EditedContext
from gimbal.workflows.plan_and_execute import PlanAndExecute
from gimbal.workflows.plan_and_repair import PlanAndRepair
from gimbal.workflows.runner import Driven
from gimbal.workflows.self_play import SelfPlay
from gimbal.workflows.shared_tree import SharedTree
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.skill_evolution import SkillEvolution


def runner(workflow, **engine):
    live = Driven(engine=Dice(**engine), workflow=workflow).start(POLICY)
    live.load(0, {})
    return live


def outcomes(live):
    return {key: plain(item.outcome) for key, item in drained(live).items()}


@dataclass(frozen=True, kw_only=True)
class Ready(AbstractPolicySpec):
    """The policy that is there."""

    def load(self, seed=0):
        return POLICY

    def at(self, directory):
        return self


@dataclass(frozen=True, kw_only=True)
class Rewrite(AbstractWorkflow):
    """A workflow of a user's own: a draft, pruned where it holds no 7; a judge's word on it, and a second row that is shown both."""

    judge: Role = Role(policy=Ready(), engine=Dice())

    @property
    def roles(self):
        return {"judge": self.judge}

    def __call__(self, attempt):
        draft = yield attempt.begin(most=6)
        if "7" not in draft.text:
            return Drop("no_seven", drawn=draft.length)
        draft = yield Draw(row=draft)
        word = yield Ask(role="judge", task=replace(attempt.task, prompt=draft.text + "?\n"))
        again = replace(attempt.task, prompt=f"{attempt.task.prompt}{draft.text}\n{word.text}\n")
        rows = yield [Draw(task=again), Draw(task=again)]  # two at once, of which the longer one is kept
        return Episode(rows=(draft, max(rows, key=lambda row: row.length)))


@dataclass(frozen=True, kw_only=True)
class Till(AbstractEnvironmentSpec):
    """Adds up what it is given; an end to the row is in its hands. ``opened`` counts live ones."""

    opened: list = field(default_factory=list, compare=False)

    @property
    def triggers(self):
        return ("=",)

    def open(self):
        self.opened.append(1)
        return LiveTill()


class LiveTill(AbstractEnvironment):
    def reset(self, task, seed):
        self.sum = 0

    def step(self, action):
        self.sum += len(action)
        return Moment(observation=str(self.sum % 10), reward=0.5, terminated=self.sum > 60)


@dataclass(frozen=True, kw_only=True)
class Hasty(AbstractWorkflow):
    """Draws two samples of a group; when the first has ended, what is left of the second is not waited for."""

    @property
    def whole(self):
        return True

    def __call__(self, attempt):
        rows = {}

        def first():
            rows[0] = yield Draw(sample=0)
            rows["ended"] = yield Stop(sample=1)

        def second():
            rows[1] = yield Draw(sample=1)

        yield [first(), second()]
        return [Episode.of(rows[0]), Drop("hasty") if rows[1] is None else Episode.of(rows[1])]


@dataclass(frozen=True, kw_only=True)
class Sevens(AbstractEnvironmentSpec):
    """Two stages: a seven, and another."""

    def open(self):
        return LiveSevens()


class LiveSevens(AbstractEnvironment):
    def reset(self, task, seed):
        pass

    def step(self, action):
        return Moment(observation=str(len(action)), reward=min(action.count("7"), 2) / 2, terminated=True)


SEVENS = Pattern(pattern=".*7.*7.*")

ALL = [
    Dialogue(overlap=0),
    Dialogue(overlap=5),
    Dialogue(tool=Till(), overlap=3),
    Branching(trunks=1, places=2, deep=True),
    Branching(inside=Dialogue(tool=Till(), overlap=2)),
    Rewrite(),
    Hasty(),
    SharedTree(reward=SEVENS, refine="{answer}\n"),
    PlanAndRepair(
        inside=PlanAndExecute(template="{plan}\n", plan=r"([1-9]+)"),
        checks=Sevens(),
        repair="{plan}{seen}\n",
        again="{failures}\n",
        past="{plan}",
        attempts=4,
        overlap=3,
    ),
    SkillEvolution(
        solver=Role(policy=Ready(), engine=Dice()), reward=SEVENS, write="{history}{prompt}", past="{score}\n"
    ),
]


@pytest.mark.parametrize("workflow", ALL, ids=lambda workflow: type(workflow).__name__)
def test_a_state_goes_on_from_any_call(workflow):
    """Stopped after each step there is, so with every length of the journals, and saved as plain records."""
    samples = 2 if isinstance(workflow, Hasty) else 4
    whole = runner(workflow)
    ask(whole, groups=2, samples=samples)
    expected = outcomes(whole)
    assert len(expected) == 2 * samples
    live, states, done, lengths = runner(workflow), [], {}, set()
    ask(live, groups=2, samples=samples)
    while live.in_flight:
        states.append((pickle.dumps(live.state_dict()), dict(done)))
        lengths |= {len(flow.journal) for flow in live.flows}
        done |= {item.key: plain(item.outcome) for item in live.step()}
    assert done == expected and len(lengths) > 1
    for state, before in states[:: max(1, len(states) // 25)]:
        resumed = runner(workflow)
        resumed.load_state_dict(pickle.loads(state))
        assert before | outcomes(resumed) == expected


def test_a_state_is_of_classes_that_a_checkpoint_reads(tmp_path):
    live = runner(Branching(inside=Dialogue(tool=Till(), overlap=2)))
    ask(live, samples=4)
    for _ in range(12):
        live.step()
    state = live.state_dict()
    assert any(flow["journal"] for flow in state["flows"])
    torch.save(
        {key: value for key, value in state.items() if key != "inner"} | {"format": FORMAT}, tmp_path / "state.pt"
    )
    assert load_checkpoint(tmp_path)["clock"] == live.clock


def test_a_workflow_of_ones_own_prunes_asks_another_policy_and_returns_several_rows():
    live = runner(Rewrite())
    ask(live, groups=2, samples=8)
    found = [item.outcome for item in drained(live).values()]
    pruned, episodes = [x for x in found if isinstance(x, Drop)], [x for x in found if isinstance(x, Episode)]
    assert {(one.reason, one.drawn <= 6) for one in pruned} == {("no_seven", True)} and len(episodes) > 1
    for episode in episodes:
        draft, final = episode.rows
        assert draft.mask_S.all() and draft.stop in ("stop", "length") and (draft.row, draft.role) == (0, "")
        assert final.task.prompt.startswith(draft.task.prompt + draft.text) and final.row in (2, 3)
        draft.validate()
    assert not live.flows and not live.others["judge"].in_flight


def test_rows_of_one_sample_have_streams_of_their_own():
    @dataclass(frozen=True, kw_only=True)
    class Twice(AbstractWorkflow):
        def __call__(self, attempt):
            one, other = yield [Draw(), Draw()]
            split = yield [Fork(row=one, at=2), Fork(row=one, at=2)]
            return Episode(rows=(one, other, *split))

    live = runner(Twice())
    ask(live, samples=1)
    (item,) = drained(live).values()
    rows = item.outcome.rows
    assert [row.row for row in rows] == [0, 1, 2, 3] and len({tuple(ids(row)) for row in rows}) == 4
    assert [row.fork for row in rows] == [None, None, (0, 2), (0, 2)] and item.outcome.drawn < sum(
        row.length for row in rows
    )


def test_what_is_stopped_comes_back_as_far_as_it_was():
    live = runner(Hasty())
    ask(live, groups=6, samples=2)
    found = drained(live)
    cut = [group for group in range(6) if found[group, 1].rollout.stop == "cancelled"]
    assert cut and all(found[group, 1].rollout.length == found[group, 0].rollout.length for group in cut)
    assert not live.inner.in_flight and not live.drawing


def test_dialogues_on_branches():
    """A branch of a dialogue has what was said before it split off, is answered after it, and shares no decision that counts."""
    live = runner(Branching(trunks=1, places=3, inside=Dialogue(overlap=2)))
    ask(live, groups=8, samples=4)
    rollouts = {key: item.rollout for key, item in drained(live).items()}
    later = 0
    for (group, _), row in rollouts.items():
        row.validate()
        if row.fork is None:
            continue
        at, trunk = row.fork[1], rollouts[group, 0]
        assert not row.mask_S[:at].any() and ids(row)[:at] == ids(trunk)[:at]
        for column in ("part_S", "turn_S"):
            assert getattr(row, column)[:at].tolist() == getattr(trunk, column)[:at].tolist()
        own = row.part_S[at:]
        assert row.mask_S[at:].tolist() == (own == Part.RESPONSE).tolist()
        later += bool((own == Part.OBSERVATION).any() and row.turn_S[at] > 0)
    assert later > 1


def test_the_environment_of_a_branch_is_where_its_trunk_left_it():
    till = Till()
    live = runner(Branching(trunks=1, places=3, inside=Dialogue(tool=till, overlap=0)))
    ask(live, groups=3, samples=4)
    branches = 0
    for key, item in drained(live).items():
        row, total = item.rollout, 0
        text = ids(row)
        for turn in range(int(row.turn_S.max()) + 1):
            told = (row.turn_S == turn) & (row.part_S == Part.OBSERVATION)
            if told.any():
                total += len(POLICY.decode(text[: int(told.nonzero()[0])]))
                assert POLICY.decode([text[int(told.nonzero()[0])]]) == str(total % 10), key
                branches += row.fork is not None and not bool(row.mask_S[int(told.nonzero()[0]) - 1])
    assert branches


GATE, CROWD = threading.Event(), threading.Barrier(16, timeout=30)


ODD = {
    "exit": (lambda: sys.exit(0), "raised SystemExit: 0"),
    "number": (lambda: 5, "raised TypeError: it returned int; a tool returns text"),
    "bytes": (lambda: b"123", "raised TypeError: it returned bytes; a tool returns text"),
    "surrogate": (lambda: "1\ud800", "answered with half of a surrogate pair"),
    "megabyte": (lambda: "9" * 1_000_000, "answered with 1,000,000 characters"),
}


@dataclass(frozen=True, kw_only=True)
class Blocking(AbstractTool):
    """Waits for something: "crowd" until 16 are asked at once, "gate" (of odd tasks) for ever, "raise" not at all."""

    what: str

    @property
    def triggers(self):
        return ("=",)

    def __call__(self, task: Task, text: str):
        if self.what == "crowd":
            CROWD.wait()
        if self.what == "gate" and task.id != "t0":
            GATE.wait()
        if self.what == "raise":
            raise OSError("no such host")
        if self.what in ODD:
            return ODD[self.what][0]()
        return "0"


def test_sixteen_calls_are_in_flight_at_once():
    """Each waits for the fifteen others, and they are asked at sixteen different steps."""
    live = runner(Dialogue(tool=Blocking(what="crowd"), answers=1, overlap=16), asks=True)
    ask(live, samples=16)
    found = drained(live)
    assert len(found) == 16 and {item.outcome.error for item in found.values()} == {""}
    assert all(int(item.rollout.turn_S.max()) == 1 for item in found.values())


def test_when_an_answer_joins_does_not_hang_on_how_long_it_took():
    @dataclass(frozen=True, kw_only=True)
    class Delayed(AbstractTool):
        late: bool
        triggers = ("=",)

        def __call__(self, task, text):
            if self.late and len(text) % 2:
                threading.Event().wait(0.002 * (len(text) % 5))
            return Calculator()(task, text)

    found = []
    for late in (False, True):
        live = runner(Dialogue(tool=Delayed(late=late), overlap=4))
        ask(live, groups=3, samples=4)
        trace = []
        while live.in_flight:
            done = live.step()
            trace.append((live.clock, live.inner.in_flight, [(item.key, plain(item.outcome)) for item in done]))
        found.append(trace)
    assert found[0] == found[1]


def test_a_tool_that_never_returns_costs_its_own_rollouts_alone(monkeypatch):
    GATE.clear()
    late = deadline.DESK.late
    live = runner(Dialogue(tool=Blocking(what="gate"), answers=1, deadline=0.05, overlap=2), asks=True)
    ask(live, groups=3, samples=2)
    found = {key: item.outcome for key, item in drained(live).items()}
    assert {key: bool(one.error) for key, one in found.items()} == {(g, s): g > 0 for g in range(3) for s in range(2)}
    broken = found[1, 1]
    assert "tool Blocking for task t1, turn 0 did not answer within 0.05 s" in broken.error
    assert broken.stop == "error" and broken.last.text.endswith("=") and deadline.DESK.late == late + 4
    assert len(deadline.DESK.hung) == 4
    monkeypatch.setattr(deadline, "MOST_HUNG", 4)
    again = runner(Dialogue(tool=Blocking(what="gate"), answers=1, deadline=0.05), asks=True)
    ask(again, groups=2)
    with pytest.raises(deadline.Hung, match="calls have not returned, tool Blocking for task t1"):
        drained(again)
    GATE.set()
    while deadline.DESK.hung:  # each thread comes back, and is there for the next call
        deadline.DESK.call("x", lambda call: 3, deadline=30.0).result()


def test_what_a_tool_raises_is_data():
    live = runner(Dialogue(tool=Blocking(what="raise")), asks=True)
    ask(live)
    (item,) = drained(live).values()
    assert item.outcome.error.startswith(
        "tool Blocking for task t0, turn 0 raised OSError: no such host (test_runner.py, line "
    )


@pytest.mark.parametrize("what", ODD)
def test_what_no_tool_may_answer_is_data_too(what):
    live = runner(Dialogue(tool=Blocking(what=what)), asks=True)
    ask(live)
    (item,) = drained(live).values()
    assert item.outcome.error.startswith(f"tool Blocking for task t0, turn 0 {ODD[what][1]}")


def test_an_environment_that_does_not_repeat_is_not_resumed():
    count = []

    @dataclass(frozen=True, kw_only=True)
    class Fickle(AbstractEnvironmentSpec):
        triggers = ("=",)

        def open(self):
            return LiveFickle()

    class LiveFickle(AbstractEnvironment):
        def reset(self, task, seed): ...

        def step(self, action):
            count.append(1)
            return Moment(observation=str(len(count) % 10))

    live = runner(Dialogue(tool=Fickle(), overlap=0))
    ask(live, groups=20)
    while live.in_flight and not any(
        sum(isinstance(answer, Moment) for _, answer in flow.journal) > 1 for flow in live.flows
    ):
        live.step()
    state = live.state_dict()
    again = runner(Dialogue(tool=Fickle(), overlap=0))
    again.load_state_dict(state)
    with pytest.raises(ValueError, match="cannot be replayed"):
        drained(again)


SECONDS = {"open": 0.0, "reset": 0.0, "step": 0.0}  # that each takes


@dataclass(frozen=True, kw_only=True)
class Slow(AbstractEnvironmentSpec):
    """Takes its time (SECONDS), and keeps what is closed."""

    closed: list = field(default_factory=list, compare=False)
    triggers: tuple = ()
    gives_up: bool = False

    def open(self):
        sleep(SECONDS["open"])
        return LiveSlow(self)


class LiveSlow(AbstractEnvironment):
    def __init__(self, spec):
        self.spec = spec

    def reset(self, task, seed):
        if self.spec.gives_up:
            raise Failure("no place is free", "sandbox", late=True)
        sleep(SECONDS["reset"])
        return "begin "

    def step(self, action):
        sleep(SECONDS["step"])
        return Moment(observation="1")

    def close(self):
        self.spec.closed.append(1)


@pytest.fixture
def slow(monkeypatch):
    """Sets the seconds of some calls; each thread has come back in the end."""
    yield lambda **seconds: [monkeypatch.setitem(SECONDS, name, value) for name, value in seconds.items()]
    while deadline.DESK.hung:
        sleep(0.01)


def outcome_of(**settings):
    live = runner(Dialogue(tool=settings.pop("tool", Slow()), answers=1, **settings), asks=True)
    ask(live)
    (item,) = drained(live).values()
    return item.settled


@pytest.mark.parametrize("what", ["open", "reset"])
@pytest.mark.parametrize("triggers", [(), ("=",)], ids=["shown", "triggered"])
def test_a_slow_setup_is_told_apart_from_a_step_that_hangs(slow, what, triggers):
    slow(**{what: 0.4})
    tool = Slow(triggers=triggers)
    late = outcome_of(tool=tool, setup=0.05, deadline=30.0)
    assert late.reason == "environment_setup_timeout"
    assert late.said == "setup of Slow for task t0, turn 0 did not answer within 0.05 s"
    while deadline.DESK.hung:
        sleep(0.01)
    assert tool.closed == [1], "when it has begun at last it is closed: nobody acts in it"
    slow(open=0.0, reset=0.0, step=0.4)
    hung = outcome_of(tool=tool, setup=30.0, deadline=0.05)
    assert hung.reason == "environment_timeout"
    assert hung.said == "tool Slow for task t0, turn 0 did not answer within 0.05 s"


@pytest.mark.parametrize("triggers", [(), ("=",)], ids=["shown", "triggered"])
def test_each_has_its_own_seconds(slow, triggers):
    """A setup of longer than a step may take, and both together longer than either may."""
    slow(open=0.1, reset=0.1, step=0.1)
    assert not outcome_of(tool=Slow(triggers=triggers), setup=0.25, deadline=0.15).error


@dataclass(frozen=True, kw_only=True)
class SlowGame(AbstractGame):
    """A match whose table takes its time."""

    seats, most = 2, None

    def open(self):
        return LiveSlow(Slow())


@pytest.mark.parametrize("name", ["BeliefState", "EditedContext", "SelfPlay"])
def test_each_workflow_that_acts_gives_a_setup_its_seconds(slow, name):
    slow(reset=0.3)
    one = {"setup": 0.05, "deadline": 30.0}
    flow = {
        "BeliefState": lambda: BeliefState(tool=Slow(), **one),
        "EditedContext": lambda: EditedContext(tool=Slow(), **one),
        "SelfPlay": lambda: SelfPlay(game=SlowGame(), **one),
    }[name]()
    live = runner(flow)
    ask(live, samples=2)
    ends = [item.settled for item in drained(live).values()]
    assert [end.reason for end in ends] == ["environment_setup_timeout"] * 2
    assert all("setup of" in end.said for end in ends)


def test_a_setup_that_gives_up_itself_counts_as_one_too():
    late = outcome_of(tool=Slow(gives_up=True))
    assert (late.reason, late.said) == ("sandbox_setup_timeout", "no place is free")


@pytest.mark.parametrize("name", ["setup", "deadline"])
def test_seconds_are_above_zero(name):
    with pytest.raises(ValueError, match=rf"{name}=0.*numbers of seconds above 0"):
        Dialogue(**{name: 0.0})


def test_what_is_done_again_has_its_own_time(slow):
    slow(reset=0.1, step=0.1)
    spec, seconds = Slow(), 0.18
    seat, act = Seat(spec, Task(id="t"), 0), Act(environment=spec, action="a", deadline=seconds)
    places = [seat.enter(action) for action in ("a", "b", "c")]
    assert not seat.answer(seat.begin(act, places[0])).error
    seat.live = None  # as in a run that was resumed: its reset and two actions are done again before the third
    moment = seat.answer(seat.begin(act, places[2]))
    assert not moment.error
    slow(step=0.3)
    assert "tool Slow for task t, turn 3 did not answer" in seat.answer(seat.begin(act, seat.enter("d"))).error


def test_single_turn_is_the_engine_itself():
    assert type(runner(SingleTurn())).__name__ == "DiceEngine"


@pytest.mark.parametrize(
    "made, words",
    [
        (lambda attempt: (yield "what?"), "yielded .what.*; it must yield a call"),
        (lambda attempt: (yield from ()), "must return an Episode or a Drop"),
    ],
)
def test_what_a_workflow_must_not_do_is_said(made, words):
    @dataclass(frozen=True, kw_only=True)
    class Wrong(AbstractWorkflow):
        def __call__(self, attempt):
            return (yield from made(attempt))

    live = runner(Wrong())
    with pytest.raises(ValueError, match=words):
        ask(live)
    assert not live.flows and not live.in_flight


def test_requests_of_no_group_are_drawn_as_they_are():
    live = runner(Rewrite())
    task = Task(id="c", prompt="1 + 1 =\n")
    from gimbal.engines.base import Request
    from gimbal.policies.token import Sampling

    live.submit(Request(group=-1, task=task, sample=0, sampling=Sampling(max_length=5), seed=0))
    (item,) = drained(live).values()
    assert item.key == (-1, 0) and len(item.outcome.rows) == 1 and item.rollout.length <= 5


def test_an_act_may_come_without_a_row():
    @dataclass(frozen=True, kw_only=True)
    class Walk(AbstractWorkflow):
        def __call__(self, attempt):
            total = yield Act(environment=Till(), action="abc")
            other = yield Act(environment=Till(), seat=1, after=(0, 1), action="de")
            row = yield attempt.begin(most=int(other.observation))
            return Episode.of(replace(row, text=total.observation, stop="stop"))

    live = runner(Walk())
    ask(live)
    (item,) = drained(live).values()
    assert item.rollout.text == "3" and item.rollout.length <= 5
