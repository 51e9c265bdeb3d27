"""A judge over a real local server that follows a script: what is sent, what is read, and everything that can go wrong."""

import contextlib
import json
import math
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gimbal.config import dump, load
from gimbal.ops import stable_hash
from gimbal.recipes.core.grpo import grpo
from gimbal.records import Drop, Group
from gimbal.rewards.asking import AbstractJudge, ask, fill
from gimbal.rewards.endpoint import Endpoint
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import NoVerdict, score
from gimbal.runtime.local import Trainer
from gimbal.runtime.pipeline import Starved
from gimbal.runtime.run import Run

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no verdict")


@dataclass
class Server:
    """``script`` maps a question to (status, text or bytes, headers); ``seen`` holds every request."""

    script: Any
    seen: list = field(default_factory=list)

    def __post_init__(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
                status, said, headers = server.script(body["messages"][-1]["content"])
                if isinstance(said, str):
                    said = json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode()
                self.send_response(status)
                for key, value in {"Content-Length": str(len(said)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # who asked may have waited long enough
                    self.wfile.write(said)

            def log_message(self, *_):
                pass

        self.live = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.live.daemon_threads = True
        threading.Thread(target=self.live.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.live.server_port}/v1"

    def reward(self, **fields):
        endpoint = {key: fields.pop(key) for key in list(fields) if key in Endpoint.__dataclass_fields__}
        timeout = {"timeout": fields.pop("within")} if "within" in fields else {}
        judge = Endpoint(**{"base_url": self.url, "pause": 0.01, "timeout": 2.0, **endpoint})
        return JudgeScore(judge=judge, **{"template": "{completion}", **fields}, **timeout)


@pytest.fixture
def serve():
    live = []

    def start(script):
        if not callable(script):
            steps = iter(script)
            script = lambda _: next(steps)  # noqa: E731
        live.append(Server(script))
        return live[-1]

    yield start
    for server in live:
        server.live.shutdown()
        server.live.server_close()


def says(text, status=200, **headers):
    return status, text, {key.replace("_", "-"): value for key, value in headers.items()}


def reasons(values):
    return [value.reason if isinstance(value, NoVerdict) else value for value in values]


def test_scores_come_back_in_order_on_the_scale(serve, group_of):
    server = serve(lambda question: says(f"It is fine. Score: {len(question)}"))
    assert server.reward()(group_of("a" * 7, "", "a" * 10)) == [0.7, 0.0, 1.0]


def test_what_is_sent(serve, group_of, monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")
    server = serve([says("Score: 5")])
    reward = server.reward(
        template="{prompt}|{completion}|{answer}|{level}",
        model="m",
        system="Be fair.",
        temperature=0.5,
        max_tokens=7,
        options={"seed": 1, "temperature": 0.25},
        key_variable="A_KEY",
    )
    assert reward(group_of("x {answer} {0}", prompt="2+2=", columns={"level": 3})) == [0.5]
    (request,) = server.seen
    assert request["path"] == "/v1/chat/completions" and request["headers"]["Authorization"] == "Bearer secret"
    assert request["body"] == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be fair."},
            {"role": "user", "content": "2+2=|x {answer} {0}|4|3"},
        ],
        "temperature": 0.25,
        "max_tokens": 7,
        "seed": 1,
    }


def test_a_missing_key_is_a_refusal(serve, group_of, monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    server = serve([])
    assert reasons(server.reward(key_variable="NO_KEY")(group_of("a"))) == ["judge_refused"] and not server.seen


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("Score: 3. No, on reflection: **Score:** 8", 0.8),
        ("score 2.5/10", 0.25),
        ("I would rather not.", "judge_unparsable"),
        ("", "judge_unparsable"),
        ("Score: 11", "judge_off_scale"),
        ("Score: -1", "judge_off_scale"),
        ("Score: __import__('os').abort()", "judge_unparsable"),
    ],
)
def test_what_is_read(said, read):
    assert reasons([JudgeScore().read(said)]) == [read]


def test_words_are_scores():
    reward = JudgeScore(pattern=r"(?i)\b(yes|no|unsure)\b", words={"YES": 1.0, "no": 0.0}, low=0.0, high=1.0)
    assert reasons(map(reward.read, ["No... yes", "no", "Unsure"])) == [1.0, 0.0, "judge_unparsable"]


def test_what_passes_is_asked_again(serve, group_of):
    server = serve([says("", 503), says("", 429, Retry_After="0"), says("Score: 4")])
    assert server.reward(attempts=3)(group_of("a")) == [0.4] and len(server.seen) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "asked"),
    [
        (says("", 500), "judge_busy", 2),
        (says("", 400), "judge_refused", 1),
        (says("", 401), "judge_refused", 1),
        (says("", 302, Location="http://127.0.0.1:1/"), "judge_refused", 1),
        (says(b"<html>"), "judge_malformed", 1),
        (says(b'{"choices": []}'), "judge_malformed", 1),
        (says(b'{"choices": [{"message": {"content": null}}]}'), "judge_malformed", 1),
        (says(b"[" * 100_000), "judge_malformed", 1),
        (says("what?"), "judge_unparsable", 1),
        (says("", 200, Content_Length="999"), "judge_unreachable", 2),  # it stops in the middle
    ],
)
def test_failures_are_bounded_and_have_a_reason(serve, group_of, answer, reason, asked):
    server = serve(lambda _: answer)
    assert reasons(server.reward(attempts=2)(group_of("a"))) == [reason] and len(server.seen) == asked


def test_nobody_there(group_of):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        judge = Endpoint(base_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1", attempts=2, pause=0.01)
        assert reasons(JudgeScore(judge=judge)(group_of("a"))) == ["judge_unreachable"]


def test_a_silent_server_costs_its_attempts(serve, group_of):
    def silent(_):
        time.sleep(0.5)
        return says("Score: 1")

    server = serve(silent)
    begun = time.monotonic()
    assert reasons(server.reward(timeout=0.05, attempts=2)(group_of("a"))) == ["judge_timeout"]
    assert len(server.seen) == 2 and time.monotonic() - begun < 0.45


def test_whoever_dawdles_is_left_behind_and_the_others_count(group_of):
    asked = []

    def judge(question):
        asked.append(question)
        time.sleep(1.0 if question == "slow" else 0.0)
        return 0.5

    reward = JudgeScore(judge=judge, template="{completion}", timeout=0.05, threads=1)
    begun = time.monotonic()
    assert reasons(reward(group_of("quick", "slow", "never"))) == [0.5, "judge_timeout", "judge_timeout"]
    assert time.monotonic() - begun < 0.5 and asked == ["quick", "slow"]


def test_questions_are_asked_side_by_side_and_equal_ones_once(serve, group_of):
    together = threading.Barrier(4)

    def script(question):
        together.wait(timeout=2)  # answers only when four are here
        return says(f"Score: {question}")

    server = serve(script)
    assert server.reward(threads=4)(group_of("1", "2", "3", "1", "4")) == [0.1, 0.2, 0.3, 0.1, 0.4]
    assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("value", "read"),
    [(0.25, 0.25), (7, 7.0), (None, None), (float("nan"), "judge_unparsable"), ([1], "judge_unparsable")],
)
def test_any_function_may_judge(group_of, value, read):
    assert reasons(JudgeScore(judge=lambda question: value)(group_of("a"))) == [read]


def test_a_judge_that_raises_is_counted_and_heard_of(group_of):
    def judge(question):
        raise ZeroDivisionError("oh")

    with pytest.warns(RuntimeWarning, match=r"mine gave no verdict \(failed\): ZeroDivisionError: oh"):
        assert reasons(JudgeScore(judge=judge, name="mine")(group_of("a"))) == ["mine_failed"]


def test_no_verdict_is_no_zero(group_of):
    """The rollout leaves although another reward applies to it; a group that loses all is dropped for the commonest reason."""
    right = "<answer>4</answer>"
    said = {"good": "Score: 10", "odd": "Score: 11"}
    judge = JudgeScore(judge=lambda question: said.get(question.partition("<")[0], "?"), template="{completion}")

    lost = Counter()
    outcome = score(group_of(f"good{right}", f"odd{right}", f"mute{right}", "mute"), (ExactAnswer(), judge), lost)
    assert isinstance(outcome, Group) and [r.score for r in outcome.rollouts] == [2.0]
    assert lost == {"judge_off_scale": 1, "judge_unparsable": 2}
    assert score(group_of("mute", "odd", "mute!"), (ExactAnswer(), judge)) == Drop("judge_unparsable")


def test_a_template_that_asks_for_what_is_not_there(group_of):
    with pytest.raises(ValueError, match=r"reads \{nowhere\}, which task t1 lacks"):
        JudgeScore(template="{nowhere}")(group_of("a"))


def test_chat_prompts_become_lines(group_of):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    assert fill("{prompt}", group_of("a", prompt="", columns={"messages": messages}).task) == (
        "system: Be brief.\nuser: 2+2?"
    )


def test_it_is_saved_with_the_run_but_not_its_key(tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")
    judge = Endpoint(model="m", key_variable="A_KEY", options={"seed": 1})
    run = replace(grpo(), rewards=(JudgeScore(judge=judge, words={"yes": 1.0}), JudgeScore(judge=fill, name="own")))
    (tmp_path / "recipe.yaml").write_text(text := dump(run, "mine"))
    assert load(tmp_path, Run) == ("mine", run) and "secret" not in text


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: JudgeScore(pattern="("), "not a valid regular expression"),
        (lambda: JudgeScore(pattern="x"), "one pair of brackets"),
        (lambda: JudgeScore(low=1.0, high=1.0), "low must be below high"),
        (lambda: Endpoint(base_url="file:///etc/passwd"), "http://"),
        (lambda: Endpoint(attempts=0), "one attempt"),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_nothing_to_ask():
    assert ask(Endpoint(), []) == [] and issubclass(Endpoint, AbstractJudge)


def test_in_a_run_the_judge_may_fail_and_the_run_goes_on(single_thread):
    """A flaky judge: rollouts leave, whole groups are replaced, all are counted, and nothing of it trains."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
    from small import small_run

    asked = Counter()

    def flaky(question):
        asked["all"] += 1
        kind = ("Score: 1", "Score: 9", "Score: 5", "?", TimeoutError("late"))[stable_hash(question) % 5]
        if isinstance(kind, Exception):
            raise kind
        return kind

    trainer = Trainer(small_run(rewards=(JudgeScore(judge=flaky, template="{prompt}{completion}"),)))
    trained = 0
    try:
        for _ in range(3):
            metrics, groups, batch = trainer.advance()
            trained += batch.shape[0]
            assert batch.shape[0] == sum(len(group.rollouts) for group in groups)
            assert {r.score for group in groups for r in group.rollouts} <= {0.1, 0.5, 0.9}
            assert all(math.isfinite(value) for value in metrics.values())
    finally:
        trainer.close()
    lost = trainer.pipeline.drops
    assert lost["rollouts/judge_unparsable"] > 0 and lost["rollouts/judge_failed"] > 0
    whole = sum(count for reason, count in lost.items() if "/" not in reason)
    apart = sum(count for reason, count in lost.items() if "/" in reason)
    assert trained + apart + 4 * whole + 4 * len(trainer.pipeline.ready) == trainer.pipeline.generated["rollouts"]


def test_a_judge_that_never_answers_ends_the_run_with_its_reason(single_thread):
    sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
    from small import small_run

    trainer = Trainer(small_run(rewards=(JudgeScore(judge=lambda question: 1 / 0),), max_empty_batches=1))
    try:
        with pytest.raises(Starved, match="2 judge_failed"):
            trainer.advance()
    finally:
        trainer.close()
