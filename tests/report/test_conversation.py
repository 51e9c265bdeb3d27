"""Rollouts of several turns, read as conversations in a real browser."""

import pytest
from browser import chromium, opened
from test_page import ATTACK, make_run
from test_viewer import written

from gimbal.report.page import write_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(\'</tool_call>\')\\nprint(2)", "n": 3}}</tool_call>'


def talked(sample, *turns, acts, **changes):
    """A rollout of these (part, text) in order; an observation ends its turn."""
    row, turn, columns = written(5, 4, sample, words=len(turns)), 0, {"turn": [], "part": []}
    for part, _ in turns:
        columns["turn"].append(turn)
        columns["part"].append(part)
        turn += part == 2
    times = {"acts": [[at, *act[:2]] for at, act in enumerate(acts)], "time/acts": [act[2] for act in acts]}
    return row | columns | times | {"pieces": [text for _, text in turns], "mask": None} | changes


@pytest.fixture(scope="module")
def conversation(tmp_path_factory):
    """Calls of tools that worked, failed and cannot be read, a long answer, and an episode of two rows, each with what its seat saw."""
    first = talked(
        0,
        *((0, f"Let me see. {CALL}<eos>"), (2, "<|im_start|>tool\n2<|im_end|>\n"), (0, "<tool_call>{oops</tool_call>")),
        *((2, f"error: {ATTACK}"), (0, "go on"), (2, "x" * 1000), (0, "<answer>2</answer><eos>")),
        acts=[(1, 0, 0.25), (2, 1, 1.5), (0, 0, 0.001)],
    )
    seats = [talked(1, (0, "b"), acts=[], row=at, role="seat 1", prompt=f"card {at}", turn=None) for at in range(2)]
    run = make_run(tmp_path_factory.mktemp("talk") / "talk", rollouts=[first, *seats])
    return "file://" + str(write_report(run))


def test_a_conversation_is_read_as_one(browser, conversation):
    with opened(browser, conversation) as page:
        page.evaluate("$('group').scrollIntoView()")  # what is out of view is not laid out
        folds = page.locator(".talk details")
        assert [fold.get_attribute("class") for fold in folds.all()] == [
            *("turn", "answer", "turn", "answer failed", "turn", "answer", "turn")
        ]
        assert [fold.get_attribute("open") is not None for fold in folds.all()] == [True] * 5 + [False, True]
        heads = [" ".join(fold.locator("summary").text_content().split()) for fold in folds.all()]
        assert heads[0].startswith("policy turn 0 Let me see.") and heads[1] == "tool turn 0 0.25 s 2"
        assert heads[3].startswith("tool turn 1 1.5 s, 1 of 2 calls failed error:") and heads[5].startswith(
            "environment turn 2 0.001 s x"
        )
        said = folds.nth(0).locator(".said").all_inner_texts(), folds.nth(1).locator(".said").all_inner_texts()
        assert said == (["Let me see."], ["2"]), "what the template writes is not said"
        assert folds.nth(0).locator(".call > b").inner_text() == "python"
        assert folds.nth(0).locator(".argument").all_inner_texts() == ["code\nprint('</tool_call>')\nprint(2)", "n\n3"]
        assert folds.nth(2).locator(".call.wrong pre").inner_text() == "<tool_call>{oops</tool_call>"
        for red in (folds.nth(2).locator(".call.wrong"), folds.nth(3).locator(".said"), folds.nth(3).locator(".told")):
            assert red.evaluate("node => getComputedStyle(node).color") == "rgb(179, 38, 30)"
        assert page.locator("#group img").count() == 0 and "<img src=x" in folds.nth(3).locator(".said").inner_text()
        page.click("#fold")
        assert page.locator(".talk details[open]").count() == 0
        page.click("#fold")
        assert page.locator(".talk details[open]").count() == 7


WRONG = [
    "null",
    "7",
    '{"name": "f", "arguments": null}',
    '{"name": "f", "arguments": [1]}',
    '{"name": 3}',
    '{"arguments": {}}',
    "[" * 9999,
]


@pytest.mark.parametrize("said", [*WRONG, "x</tool_call>" * 3000, " " * 100_000 + "y"])
def test_what_is_no_call_is_told_as_one_that_cannot_be_read(browser, tmp_path, said):
    """And holds up nothing: a model may write anything."""
    row = talked(0, (0, f"<tool_call>{said}</tool_call>"), (2, "no"), (0, "ok"), acts=[(1, 1, 0.1)])
    run = make_run(tmp_path / "odd", rollouts=[row, {**row, "sample": 1, "acts": None, "time/acts": None}])
    with opened(browser, "file://" + str(write_report(run))) as page:
        assert page.locator(".call.wrong").count() == 2 and page.locator(".talk .answer").count() == 2
        assert page.locator(".talk .failed").count() == 1, "what is not on record is not told"


def test_rows_of_an_episode_stand_together_with_their_role(browser, conversation):
    with opened(browser, conversation) as page:
        rows = page.locator("#members > .episode > .member")
        assert rows.count() == 2 and page.locator("#members > .member").count() == 1
        assert [row.locator(".role").text_content() for row in rows.all()] == ["seat 1", "seat 1"]
        assert page.locator(".member .prompt.own").all_text_contents() == ["Prompt of 4", "card 0", "card 1"]
        assert rows.nth(1).locator("header").text_content().startswith("sample 1, row 1: seat 1 reward")
