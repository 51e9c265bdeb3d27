"""What is said of a run, on a terminal and elsewhere."""

import io
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from report_records import rollout
from test_files import summary

from gimbal.report.console import Console, one_line, spark, verdict
from gimbal.report.files import duration

STEP = {"step": 3.0, "reward/mean": 0.25, "mismatch/prob_diff": 0.0123, "staleness/max": 1.0, "time/step": 2.0}


def test_elsewhere_a_line_a_step(capsys):
    console = Console(10, "demo")
    console.note("before: 0.1")
    console.step(STEP)
    console.step({**STEP, "step": 4.0, "time/step": 4.0, "loop/factor": 2.345, "cost/step": 0.125})
    console.sample(rollout(0.5, text="seven\n\x1b[31m"))
    console.sample(rollout(0.5, text=" "))
    console.close()
    assert capsys.readouterr().out.splitlines() == [
        "before: 0.1",
        "step 3/10  reward 0.250  mismatch 0.0123  staleness 1  left 14 s",
        "step 4/10  reward 0.250  cost a step 0.125  mismatch 0.0123  staleness 1  lr x 2.35  left 18 s",
        "  e.g. 3 + 4 = -> seven⏎·[31m  [reward 0.5]",
    ]


def test_the_prompt_of_a_chat_is_its_messages(capsys):
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "3 + 4?"}]
    drawn = rollout(0.5, text="seven")
    console = Console(10, "demo")
    console.sample(replace(drawn, task=replace(drawn.task, prompt="", columns={"messages": chat})))
    console.close()
    assert capsys.readouterr().out == "  e.g. system: Be short.⏎user: 3 + 4? -> seven  [reward 0.5]\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_a_panel(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    console = Console(10, "demo [red]x[/red]")
    console.note("a note with [brackets]")
    console.sample(rollout(text="[bold]7[/bold]\x1b]0;owned\x07"))
    console.step(STEP)
    console.close()
    shown = screen.getvalue()
    assert "demo [red]x[/red]" in shown and "a note with [brackets]" in shown and "[bold]7[/bold]" in shown
    assert "step 3 of 10, 14 s left" in shown and "0.250" in shown
    assert "\x1b]0;owned" not in shown


def test_a_narrow_terminal_shows_every_figure_whole(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    console = Console(10, "demo")
    console.step(
        {
            **STEP,
            "pass_rate": 0.375,
            "entropy/mean": 0.125,
            "length/mean": 21.4,
            "grad_norm": 0.75,
            "perf/tokens_per_s": 333.0,
        }
    )
    console.close()
    for figure in ("0.250", "0.375", "0.125", "0.0123", "21.4", "0.75", "333", "mismatch", "pass rate"):
        assert figure in screen.getvalue(), figure


@pytest.mark.slow
def test_a_reader_that_left_does_not_end_the_run(tmp_path):
    """The reader closes the pipe after the first line; all ten steps are taken nevertheless."""
    program = (
        "import time; from gimbal.report.console import Console; console = Console(10, 'demo')\n"
        "for step in range(10): console.step({'step': float(step)}); time.sleep(0.02)\n"
        f"open({str(tmp_path / 'end')!r}, 'w')"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline().startswith(b"step 0")
    process.stdout.close()
    assert process.wait() == 0 and (tmp_path / "end").exists()


def test_spark():
    assert spark([0.0, 0.5, 1.0]) == "▁▄█"
    assert spark([2.0, 2.0]) == "▁▁"
    assert spark([0.0, math.nan, 1.0]) == "▁ █"
    assert spark([math.nan]) == " "
    assert spark([]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89.0, "89 s"), (90.0, "2 min"), (5340.0, "89 min"), (7260.0, "2 h 1 min")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_one_line_breaks_nothing():
    assert one_line(" a\tb\r\n\x07数 ") == "a·b·⏎·数"


def test_verdict():
    lines = verdict(summary())
    assert lines[0].split() == ["held-out", "pass@1", "(sampled)", "0.250", "->", "0.750", "(+0.500)"]
    assert lines[1].split()[-4:] == ["0.500", "->", "0.250", "(-0.250)"]
    assert "20 steps" in lines[2] and "12,345 decisions" in lines[2] and "0.0123" in lines[2]
    assert lines[3] == "groups dropped: 6 zero_variance"
    drops = {"rollouts/unscored": 3, "late": 1, "rollouts/error": 2}
    assert verdict(summary(drops=drops))[3:] == ["groups dropped: 1 late", "rollouts dropped: 3 unscored, 2 error"]


def test_verdict_of_graded_rewards():
    """What never reaches 1 solves no task; its mean is what was learned, and comes first."""
    score = {"eval/score": 0.2, "eval/greedy_score": 0.1}
    before = {**score, "eval/pass@1": 0.0, "eval/greedy": 0.0}
    graded = verdict(summary(before=before, after={**before, "eval/score": 0.7}, drops={}))
    assert graded[0].split() == ["held-out", "score", "(sampled)", "0.200", "->", "0.700", "(+0.500)"]
    assert graded[1].startswith("held-out score (greedy)") and not any("pass@1" in line for line in graded)
    reached = verdict(summary(before=before, after={**before, "eval/score": 0.7, "eval/greedy": 0.1}, drops={}))
    assert reached[2].split()[:5] == ["held-out", "pass@1", "(sampled)", "0.000", "->"]
    rarely = verdict(summary(before=before, after={**before, "eval/score": 0.7, "eval/pass@1": 0.1}, drops={}))
    assert "pass@1" in rarely[0] and "held-out score (sampled)" in rarely[2]
    exact = dict.fromkeys(("eval/pass@1", "eval/score"), 0.5)
    assert not any("score" in line for line in verdict(summary(before=exact, after=exact, drops={})))


def test_verdict_of_returns_and_of_nothing():
    returns = summary(before={"eval/score": 20.0}, after={"eval/score": 400.0}, drops={})
    assert verdict(returns)[0].split() == ["held-out", "return", "(sampled)", "20.000", "->", "400.000", "(+380.000)"]
    assert len(verdict(summary(before={}, after={}, drops={}))) == 1


def test_a_step_that_generated_nothing_has_no_rate(capsys):
    """Where a batch was drawn before, as every second one of a run at age 1: 0 would read as an engine that stands still."""
    console = Console(2, "run")
    for step, rate in ((1, 250.0), (2, 0.0)):
        console.step({"step": float(step), "reward/mean": 1.0, "perf/tokens_per_s": rate, "time/step": 1.0})
    first, second = capsys.readouterr().out.splitlines()
    assert "tok/s 250 " in first and "tok/s - " in second, "columns stay where they are"
    Console(2, "run").step({"step": 1.0, "loss": 1.0, "perf/tokens_per_s": 0.0})
    assert "tok/s" not in capsys.readouterr().out, "of a run on written answers"


def test_a_sentence_about_the_run_has_the_prefix_of_those_before_it(capsys):
    console = Console(2, "run")
    console.tell("all 3 held-out tasks are also trained on")
    console.note("report: runs/a/report.html")
    assert capsys.readouterr().out == "gimbal: all 3 held-out tasks are also trained on\nreport: runs/a/report.html\n"


def test_recorded_answers_are_told_by_their_loss(capsys):
    """Their reward is of somebody else's text, and was 0.000 throughout a run of SFT."""
    console = Console(2, "sft", recorded=True)
    console.before({"eval/loss": 5.883})
    console.step({"step": 1.0, "loss": 5.5, "reward/mean": 0.0, "pass_rate": 0.0, "time/step": 1.0})
    console.sample(rollout(0.0, text="seven"))
    console.verdict(summary(before={"eval/loss": 5.883}, after={"eval/loss": 5.6}, drops={}))
    before, step, sample, after, cost = capsys.readouterr().out.splitlines()
    assert before == "before training: held-out loss 5.883"
    assert step == "step 1/2  loss 5.500  left 1 s" and "[" not in sample
    assert after.split() == ["held-out", "loss", "5.883", "->", "5.600", "(-0.283)"]
    assert "tokens of recorded answers" in cost and "generated" not in cost


def test_an_evaluation_of_which_nothing_is_left_says_so(capsys):
    lost = {"eval/failed": 4.0, "eval/failed/environment_error": 4.0}
    Console(2, "run").before(lost)
    told = verdict(summary(before=lost, after={"eval/score": -3.0, "eval/failed": 1.0, "eval/failed/unscored": 1.0}))
    assert capsys.readouterr().out == "before training: no held-out score, because every rollout failed\n"
    assert told[:2] == [
        "held-out rollouts that failed before training: 4 (4 environment_error), so it has no score",
        "held-out rollouts that failed after training: 1 (1 unscored)",
    ]


def test_of_segments_the_return_of_whole_episodes_is_shown(capsys):
    console = Console(2, "run", segments=True)
    console.step({"step": 1.0, "reward/mean": -9.0, "time/step": 1.0})
    console.step({"step": 2.0, "reward/mean": -9.0, "reward/return/mean": -45.0, "time/step": 1.0})
    first, second = capsys.readouterr().out.splitlines()
    assert "-9" not in first + second and "-45.000" in second


def test_before_training_the_few_figures_that_matter(capsys):
    console = Console(2, "run")
    figures = {
        "eval/score": 0.25,
        "eval/greedy_score": 0.5,
        "eval/pass@1": 0.25,
        "eval/greedy": 0.5,
        "eval/length": 9.0,
    }
    console.before({**figures, "eval/pass@4": 0.7, "eval/empty_frac": 0.0, "eval/truncated_frac": 0.0})
    console.before({**figures, "eval/truncated_frac": 0.97})
    console.before({"eval/score": 20.0, "eval/greedy_score": 9.0})
    assert capsys.readouterr().out.splitlines() == [
        "before training: held-out pass@1 (sampled) 0.250, accuracy (greedy) 0.500, length 9.0",
        "before training: held-out pass@1 (sampled) 0.250, accuracy (greedy) 0.500, length 9.0, 97% cut off at max_length",
        "before training: held-out return (sampled) 20.000, return (greedy) 9.000",
    ]


def test_what_no_stream_can_write_ends_no_run(monkeypatch):
    """Half of a surrogate pair in a tool's error, or a letter that the terminal does not know."""
    for code in ("utf-8", "ascii"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=code)
        monkeypatch.setattr(sys, "stdout", stream)
        Console(1, "demo").note("a \ud800 b ☃")
        assert rb"a \ud800 b" in stream.buffer.getvalue()


def test_a_pass_rate_is_shown_once_an_answer_reached_1(capsys):
    console = Console(4, "graded")
    for share in (0.0, 0.5, 0.0):
        console.step(STEP | {"pass_rate": share})
    Console(4, "exact").step(STEP | {"reward/mean": 0.0, "pass_rate": 0.0})
    graded, first, later, exact = capsys.readouterr().out.splitlines()
    assert "pass rate" not in graded and "pass rate 0.500" in first
    assert "pass rate 0.000" in later and "pass rate 0.000" in exact


def test_what_nothing_scores_is_followed_by_its_loss(capsys):
    unscored = {"step": 1.0, "loss": 0.19, "matching/apart": 0.07, "time/step": 1.0}
    Console(2, "dmd2", paid=False).step(unscored)
    line = capsys.readouterr().out
    assert "step 1/2  loss 0.19  apart from the teacher 0.070  left" in line and "score" not in line


def test_what_others_say_cannot_move_the_cursor_nor_clear_the_screen(capsys):
    console = Console(10, "demo")
    console.note("it printed: \x1b[2J\x9b31m\rgone")
    console.alarm("a tool said\n\x1b]0;title\x07")
    console.close()
    said = capsys.readouterr().out
    assert said == "it printed: ·[2J·31m·gone\na tool said\n·]0;title·\n"
