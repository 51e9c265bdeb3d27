"""A context that the policy edits: what each decision was drawn behind, where rows end, what slides out, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from dice import POLICY, ids, plain
from speaker import Speaker

from gimbal import recipes
from gimbal.advantages import GroupNormalized
from gimbal.config import Text
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.recall import Recall, Streams
from gimbal.environments.terminal import Terminal
from gimbal.environments.tools import Calculator
from gimbal.ops import SequenceMean
from gimbal.policies.token import Sampling
from gimbal.recipes.papers.agents.mem_act import mem_act
from gimbal.records import Drop, Group, Task
from gimbal.runtime.compose import check
from gimbal.workflows.branching import Branching
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.edited_context import EditedContext
from gimbal.workflows.runner import Driven

LINES = ["a1b2\n", "c3d4\n", "e5f6\n"]
STREAM = Task(id="s", prompt="ae?\n", answer="15", columns={"lines": LINES})
CHAT = Task(id="c", answer="15", columns={"lines": LINES, "messages": [{"role": "user", "content": "ae?"}]})
PLAIN = {"window": 60, "turn": 8, "edit": r"^-()", "overlap": 0}
ROLES = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '<eos>' if m.role == 'assistant' else '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture
def chatting():
    """The policy with a template that closes the prompt, as those of real models do."""
    tokenizer = POLICY.tokenizer
    before, tokenizer.chat_template = tokenizer.chat_template, ROLES
    yield tokenizer.apply_chat_template
    tokenizer.chat_template = before


def live_of(says, policy=POLICY, **fields):
    live = Driven(engine=Speaker(says=says), workflow=EditedContext(**PLAIN | fields)).start(policy)
    live.load(0, policy.state_dict())
    return live


def request(task=STREAM, sample=0, length=80):
    return Request(group=0, task=task, sample=sample, sampling=Sampling(max_length=length), seed=7)


def episode(says, task=STREAM, **fields):
    live = live_of(says, **fields)
    live.submit(request(task))
    (item,) = drained(live).values()
    return item.outcome


def whole(row):
    """All tokens of a row as text, special ones included."""
    return POLICY.tokenizer.decode(row.decisions.ids_NL[0].tolist())


def counted(row):
    return POLICY.tokenizer.decode([token for token, own in zip(ids(row), row.mask_S.tolist(), strict=True) if own])


def keeps_all(context):
    """An edit at every line, with what is asked of it; the answer at the end."""
    facts = {key: value for key, value in pairwise(context) if key in "ae" and value.isdigit()}
    said = "".join(key + facts[key] for key in "ae" if key in facts)
    return "".join(facts[key] for key in "ae") if context.endswith("=") else "-" + said


def test_an_edit_ends_a_row_and_the_next_begins_behind_what_is_left():
    outcome = episode(keeps_all)
    assert [whole(row) for row in outcome.rows] == [
        "ae?\na1b2\n-a1<eos>",
        "ae?\n-a1<eos>c3d4\n-a1<eos>",
        "ae?\n-a1<eos>e5f6\n-a1e5<eos>",
        "ae?\n-a1e5<eos>=15<eos>",
    ]
    assert [counted(row) for row in outcome.rows] == ["-a1<eos>", "-a1<eos>", "-a1e5<eos>", "15<eos>"]
    assert [row.task.prompt for row in outcome.rows][1] == "ae?\n-a1c3d4\n", "what a reader of the row sees"
    assert (outcome.earned, outcome.stop, len(outcome.acts)) == (1.0, "terminated", 4)
    for row in outcome.rows:  # the engine's log-probability tells how long the context was
        begun = int(row.decisions.prompt_N[0])
        expected_S = -0.01 * (begun + torch.arange(row.length))
        torch.testing.assert_close(row.behavior_S, expected_S)


def test_a_pattern_that_never_matches_is_a_sliding_window():
    outcome = episode(lambda context: "0" if context.endswith("=") else "-", window=26, edit="(never)")
    # 4 of the prompt, 7 of a turn, 5 of a line, and 8 that are kept free: 24 of 26.
    assert [whole(row) for row in outcome.rows] == [
        "ae?\na1b2\n-<eos>c3d4\n-<eos>",
        "ae?\nc3d4\n-<eos>e5f6\n-<eos>",
        "ae?\ne5f6\n-<eos>=0<eos>",
    ]
    assert outcome.earned == 0


def test_a_window_that_holds_the_whole_episode_is_a_dialogue():
    def says(context):
        return "0" if context.endswith("=") else ""

    mine = episode(says, window=80, edit="(never)")
    live = Driven(engine=Speaker(says=says), workflow=Dialogue(tool=Recall(), overlap=0)).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(request())
    (theirs,) = drained(live).values()
    (row,), (other,) = mine.rows, theirs.outcome.rows
    assert ids(row) == ids(other) and torch.equal(row.mask_S, other.mask_S) and torch.equal(row.turn_S, other.turn_S)
    assert torch.equal(row.behavior_S, other.behavior_S) and row.text == other.text


def test_numbers_drop_single_turns():
    said = iter(["x", "y", "-1", "0"])
    outcome = episode(lambda context: next(said), edit=r"^-(\d*)")
    assert [whole(row) for row in outcome.rows] == [
        "ae?\na1b2\nx<eos>c3d4\ny<eos>e5f6\n-1<eos>",
        "ae?\nc3d4\ny<eos>e5f6\n-1<eos>=0<eos>",
    ]
    assert counted(outcome.rows[0]) == "x<eos>y<eos>-1<eos>" and counted(outcome.rows[1]) == "0<eos>"
    workflow = EditedContext()
    assert workflow.dropped("<drop>2, 9 4</drop> b is 2", 4) == {2, 4}
    assert workflow.dropped("<drop> all </drop>", 4) is None and workflow.dropped("<drop></drop>", 0) is None
    assert workflow.dropped("<drop>7</drop>", 4) == workflow.dropped("no edit", 4) == frozenset()


def test_an_edit_that_drops_nothing_ends_no_row():
    said = iter(["x", "-7", "y", "0"])
    assert len(episode(lambda context: next(said), edit=r"^-(\d*)").rows) == 1


def test_a_chat_keeps_its_first_turn_and_its_form(chatting):
    said = iter(["x", "-", "y", "0"])
    outcome = episode(lambda context: next(said), CHAT, window=200)
    user, assistant = ({"role": role} for role in ("user", "assistant"))
    begun = [user | {"content": "ae?"}, user | {"content": LINES[0]}, assistant | {"content": "x"}]
    edited = [*begun, user | {"content": "(dropped)"}, assistant | {"content": "-"}, user | {"content": LINES[2]}]
    before = [*begun, user | {"content": LINES[1]}]
    first, second = map(whole, outcome.rows)
    assert first == chatting(before, add_generation_prompt=True, tokenize=False) + "-<eos>"
    assert second.startswith(chatting(edited, add_generation_prompt=True, tokenize=False) + "y<eos>")
    assert counted(outcome.rows[0]) == "x<eos>-<eos>" and counted(outcome.rows[1]) == "y<eos>0<eos>"


def test_a_chat_whose_first_turn_is_an_edit_drops_nothing(chatting):
    said = iter(["-", "x", "y", "0"])
    assert len(episode(lambda context: next(said), CHAT, window=200).rows) == 1


def test_a_turn_that_does_not_end_ends_the_episode():
    outcome = episode(lambda context: "123456789")
    assert outcome.stop == "length" and outcome.rows[-1].length == 8 and outcome.earned == 0


def test_a_prompt_that_leaves_no_room_is_dropped():
    outcome = episode(keeps_all, window=12)
    assert isinstance(outcome, Drop) and outcome.reason == "no_room"


def test_the_weight_of_an_episode_does_not_grow_with_its_rows():
    """Three episodes of 4, 1 and 4 rows: statistics and the loss count each once."""
    edited, single = episode(keeps_all), episode(lambda context: "0" if context.endswith("=") else "", window=80)
    failed = episode(lambda context: "00" if context.endswith("=") else "-")
    three = (edited, single.map(lambda row: replace(row, sample=1)), failed.map(lambda row: replace(row, sample=2)))
    batch = pack([Group(index=0, task=STREAM, episodes=three)])
    assert batch.episode_N.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2]
    assert batch.return_N.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    advantage_NS = GroupNormalized().of_rows(batch)
    scores = torch.tensor([1.0, 0.0, 0.0])
    expected_G = (scores - scores.mean()) / (scores.std() + 1e-6)
    for number, own in enumerate(expected_G):
        mine_NS = batch.mask_NS & (batch.episode_N == number)[:, None]
        torch.testing.assert_close(advantage_NS[mine_NS], own.expand(int(mine_NS.sum())), atol=1e-4, rtol=1e-4)
    weight_NS = SequenceMean()(batch.mask_NS, None, batch.episode_N)
    each = [float(weight_NS[batch.episode_N == number].sum()) for number in range(3)]
    assert each == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_the_learner_evaluates_what_was_sampled():
    """By the model itself: rows cut at edits have the log-probabilities that they were sampled with."""
    live = Driven(engine=Native(slots=4, precision="float32"), workflow=EditedContext(**PLAIN | {"turn": 16})).start(
        POLICY
    )
    live.load(0, POLICY.state_dict())
    for sample in range(4):
        live.submit(request(Streams()[sample], sample))
    rows = [row for item in drained(live).values() for row in item.outcome.rows]
    for row in rows:
        evaluated_S = POLICY.evaluate(row.decisions, temperature=1.0).logprob_NS[0]
        torch.testing.assert_close(evaluated_S[row.mask_S], row.behavior_S[row.mask_S], atol=1e-4, rtol=0)


@pytest.mark.parametrize("at", range(1, 20, 3))
def test_it_continues_from_its_journal_to_the_bit(at):
    def begun():
        live = live_of(keeps_all, window=40)
        for sample in range(3):
            live.submit(request(sample=sample))
        return live

    alone = {key: plain(item.outcome) for key, item in drained(begun()).items()}
    live, found = begun(), {}
    for _ in range(at):
        found |= {item.key: plain(item.outcome) for item in live.step()}
    other = live_of(keeps_all, window=40)
    other.load_state_dict(live.state_dict())
    found |= {key: plain(item.outcome) for key, item in drained(other).items()}
    assert found == alone


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tool": Calculator()}, "called in the middle of a turn"),
        ({"edit": "("}, "no regular expression"),
        ({"edit": "a(b)(c)"}, "must have one group"),
        ({"edit": "drop"}, "must have one group"),
        ({"turn": 60}, "a turn of 1 or more tokens and less than the window"),
        ({"overlap": -1}, "an overlap of 0 or more"),
        ({"answers": 0}, "before an edit can act: set it to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, reason):
    with pytest.raises(ValueError, match=reason):
        EditedContext(**PLAIN | fields)


def test_what_does_not_go_together_is_refused():
    run = mem_act()
    check(run)
    with pytest.raises(ValueError, match="max_length=31"):
        check(replace(run, sampling=Sampling(max_length=30)))
    split = Branching(inside=run.workflow)
    with pytest.raises(ValueError, match="does not know what the context of a split row was"):
        check(replace(run, workflow=split, held_out=None))


def test_as_a_user_types_it():
    typed = Text("EditedContext(tool=Terminal(most=200),window=64,turn=16)")
    run = recipes.load("mem_act", {"workflow": typed, "max_length": Text("64")})
    assert run.workflow == EditedContext(tool=Terminal(most=200), window=64, turn=16)
