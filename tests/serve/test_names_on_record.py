"""A name is one episode: what ends it, what is known of it in memory and on file, and what a file may hold."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from test_completion_server import SAMPLING, post, refused
from test_sessions import TASK, health, serving

from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM
from gimbal.records import Drop
from gimbal.serve import exchanges
from gimbal.serve.exchanges import read
from gimbal.serve.server import CompletionServer

PLAIN, SHORT = "/v1/completions", {"prompt": "1 + 1 =", "max_tokens": 2}


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def answered(server, *names):
    for name in names:
        post(server, f"/{name}{PLAIN}", SHORT)


def test_a_score_has_the_same_bounds_from_python_and_on_file(policy, tmp_path):
    record = tmp_path / "r.jsonl"
    with serving(policy, record=record) as server:
        answered(server, "s", "t")
        before = record.read_text()
        for score in (float("nan"), float("inf"), 1e300, 10**400, "x", None, True):
            with pytest.raises(ValueError, match="score is"):
                server.reward("s", score)
        assert record.read_text() == before
        server.reward("s", np.float32(0.5))
        assert server.take("s").score == 0.5 and read(record)[0].score == 0.5
    for score in ("NaN", "1e300", '"x"', "null", "true"):
        record.write_text(before + f'{{"session": "t", "score": {score}}}\n')
        with pytest.raises(ValueError, match=r"r\.jsonl, line 3 .*score is"):
            read(record)


def test_who_gave_no_name_cannot_be_ended(policy):
    with serving(policy) as server:
        post(server, PLAIN, SHORT)
        assert "with a name" in refused(server, "/v1/reward", {"score": 1})[1]
        with pytest.raises(ValueError, match="with a name"):
            server.reward("", 1.0)
        assert len(server.take().exchanges) == 1
        post(server, PLAIN, SHORT)


def test_memory_keeps_who_goes_on_and_the_record_who_was_crowded_out(policy, tmp_path):
    """Finished sessions go first; an open one that had to go is rewarded where its answers are, once."""
    record = tmp_path / "r.jsonl"
    with serving(policy, keep=3, record=record) as server:
        answered(server, "slow")
        for name in "abc":
            answered(server, name)
            server.reward(name, 1.0)
        assert server.answers.sessions.open.keys() == {"slow"}
        answered(server, "d", "e", "f")
        assert server.answers.sessions.open.keys() == {"d", "e", "f"}
        server.reward("slow", 0.5)
        for name in ("slow", "a"):  # neither is in memory
            assert "is over" in refused(server, f"/{name}/v1/reward", {"score": 0})[1]
            assert "is over" in refused(server, f"/{name}{PLAIN}", SHORT)[1]
        assert "no answers" in refused(server, "/nobody/v1/reward", {"score": 0})[1]
    assert [(session.name, session.score) for session in read(record)][:2] == [("slow", 0.5), ("a", 1.0)]
    with serving(policy, keep=1) as server:
        answered(server, "slow", "a")
        assert "are gone" in refused(server, "/slow/v1/reward", {"score": 1})[1]


def test_a_server_goes_on_where_the_record_ends(policy, tmp_path, monkeypatch):
    record = tmp_path / "r.jsonl"
    with serving(policy, record=record) as server:
        answered(server, "open", 'over"\\', "silent")
        server.reward('over"\\', 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(exchanges, "_row", None)
        assert exchanges.ended(record) == {"open": False, 'over"\\': True, "silent": False}, "and no answer was decoded"
    with record.open("a") as file:
        file.write('{"session": "torn", "task": "0')
    with pytest.warns(RuntimeWarning, match="its last line is unfinished"):
        again = serving(policy, record=record)
    with again as server:
        assert "no answers" in refused(server, "/torn/v1/reward", {"score": 0})[1]
        for path, body in (("reward", {"score": 0}), ("completions", SHORT)):
            assert "is over" in refused(server, f"/over%22%5C/v1/{path}", body)[1]
        answered(server, "open")
        for name in ("open", "silent"):
            assert post(server, f"/{name}/v1/reward", {"score": 0.5})["score"] == 0.5
        made = [server.episode(name, TASK, 0) for name in ("open", "silent", 'over"\\')]
        assert [sum(int(row.mask_S.sum()) for row in one.rows) for one in made] == [4, 2, 2], "what is on file too"
        assert [one.score for one in made] == [0.5, 0.5, 1.0]
    assert [session.name for session in read(record)] == ["open", 'over"\\', "silent"]


@pytest.mark.parametrize("before", [True, False])
def test_an_answer_under_way_when_its_session_is_taken_is_dropped(policy, tmp_path, before):
    with serving(policy, record=tmp_path / "r.jsonl") as server:
        if before:
            answered(server, "s")
        with ThreadPoolExecutor(1) as pool:
            with server.driver._engine_lock:
                late = pool.submit(refused, server, "/s" + PLAIN, SHORT)
                while not server.driver.under_way:
                    time.sleep(0.01)
                made = server.episode("s", TASK, 0)
            assert isinstance(made, Drop) and "was taken and is over" in late.result()[1]
        assert health(server.url)["drops"] == {made.reason: 1, "after it was taken": 1}
        assert [len(session.exchanges) for session in read(server.answers.sessions.record)] == [1] * before


def test_what_a_reward_cuts_short_says_so(policy):
    """All answers of a stream, drawn or not: nobody has gone."""
    with serving(policy) as server, ThreadPoolExecutor(1) as pool:
        answered(server, "s")
        with server.driver._engine_lock:
            late = pool.submit(refused, server, "/s" + PLAIN, SHORT | {"n": 20, "stream": True, "max_tokens": 1})
            while server.driver.under_way < 20:
                time.sleep(0.01)
            server.reward("s", 1.0)
        assert "is over" in late.result()[1]
        deadline = time.monotonic() + 10
        while sum(server.driver.drops.values()) < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert health(server.url)["drops"] == {"after the reward": 20}


def test_rows_are_found_without_a_look_at_all_others(policy):
    """Twice the exchanges are twice the work, where none continues another and where each continues the last."""
    with serving(policy) as server:
        answered(server, "s")
        (one,) = server.take("s").exchanges

    def work(count, continues):
        many, ids = [], one.ids
        for number in range(count):
            context = ids if continues else [number % 100, number // 100, *one.ids]
            row = json.loads(exchanges.written(one)) | {"prompt_ids": context}
            many.append(exchanges._read(row))
            ids = many[-1].ids
        calls = 0

        def counted(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            made = exchanges.rows(many)
        finally:
            sys.setprofile(None)
        assert len(made) == (1 if continues else count)
        return calls, sum(len(exchange.ids) for exchange in many)

    for continues in (False, True):
        (few, tokens), (many, more) = work(40, continues), work(80, continues)
        assert many / few < 1.1 * more / tokens


def test_a_record_that_cannot_be_written_ends_the_server_at_its_start(policy, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path, Path("/dev/full"), tmp_path / "file" / "r.jsonl"):
        with pytest.raises(ValueError, match=f"cannot append to record {place}"):
            serving(policy, record=place)


def test_a_file_that_was_changed_says_where(policy, tmp_path):
    record = tmp_path / "r.jsonl"
    with pytest.raises(ValueError, match="is not a file"):
        read(record)
    with serving(policy, record=record) as server:
        answered(server, "s")
    line = json.loads(record.read_text())
    for changed, said in [
        (5, "not a JSON object"),
        ({"a": 1}, "it has no 'session'"),
        (line | {"session": ["s"]}, "is not a name"),
        (line | {"token_ids": ["a", "b"]}, ""),
        (line | {"token_ids": [1]}, "not of one length"),
        (line | {"logprobs": [0.0, float("nan")]}, "not finite"),
        (line | {"versions": [0]}, "not of one length"),
        (line | {"sampling": 3}, ""),
        ({"session": "s", "prompt": "x"}, "it has no "),
    ]:
        record.write_text(json.dumps(line) + "\n" + json.dumps(changed) + "\n")
        with pytest.raises(ValueError, match=rf"r\.jsonl, line 2 is not as gimbal serve wrote it: .*{said}"):
            read(record)


def test_weights_only_grow_newer(policy):
    with serving(policy) as server:
        server.load(5, policy.state_dict())
        server.load(5, policy.state_dict())
        with pytest.raises(ValueError, match="version 2 is older than 5"):
            server.load(2, policy.state_dict())
        assert health(server.url)["version"] == 5
    with CompletionServer(Native(slots=2, precision="float32").start(policy), policy, SAMPLING) as server:
        assert "server.load" in refused(server, PLAIN, SHORT)[1]
