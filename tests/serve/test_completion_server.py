"""The endpoint with real requests over HTTP, by hand and with OpenAI's own client, against the native engine."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from gimbal import api
from gimbal.cli.serve import serving_engine
from gimbal.engines.native import Native
from gimbal.engines.vllm import VLLM
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.records import Part
from gimbal.serve.exchanges import read
from gimbal.serve.server import CompletionServer

QUESTION = "State the final answer to the following arithmetic problem: 12 + 31 ="
SAMPLING = Sampling(max_length=40)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


@pytest.fixture
def server(policy, tmp_path):
    engine = Native(slots=8, precision="float32").start(policy)
    engine.load(3, policy.state_dict())
    with CompletionServer(engine, policy, SAMPLING, name="tiny", record=tmp_path / "out" / "exchanges.jsonl") as made:
        yield made


def post(server, path, body, data=None):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode() if data is None else data, JSON)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read())


def refused(server, path, body, data=None):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(server, path, body, data)
    return caught.value.code, json.loads(caught.value.read())["error"]["message"]


def ask(server, *messages, session="", **more):
    said = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 9, messages, strict=False)]
    return post(
        server, f"/{session}/v1/chat/completions" if session else "/v1/chat/completions", {"messages": said} | more
    )


def trainable(policy, row, temperature=1.0):
    """The row's behaviour log-probabilities are the policy's own wherever it decided."""
    row.validate()
    logprob_S = policy.evaluate(row.decisions, temperature=temperature).logprob_NS[0]
    torch.testing.assert_close(row.behavior_S[row.mask_S], logprob_S[row.mask_S].detach(), atol=1e-4, rtol=0)


def test_a_chat_answers_with_its_tokens(server, policy):
    answer = ask(server, QUESTION, model="tiny", logprobs=True)
    choice = answer["choices"][0]
    assert choice["prompt_token_ids"] == policy.tokenizer.encode(QUESTION + "\n", add_special_tokens=False)
    assert policy.decode(choice["token_ids"]) == choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert set(choice["token_versions"]) == {3}
    said = choice["logprobs"]["content"]
    assert "".join(item["token"] for item in said) == policy.tokenizer.decode(choice["token_ids"])
    assert answer["usage"]["completion_tokens"] == len(said) == len(choice["token_ids"])
    (row,) = server.take().rows
    assert row.behavior_S.tolist() == [item["logprob"] for item in said]
    trainable(policy, row)
    assert server.take().exchanges == ()


def test_completions_take_text_and_tokens(server, policy):
    ids = policy.tokenizer.encode(QUESTION + "\n")
    first = post(server, "/v1/completions", {"prompt": QUESTION + "\n", "seed": 5, "max_tokens": 3})["choices"][0]
    again = post(server, "/v1/completions", {"prompt": ids, "seed": 5, "max_tokens": 3})["choices"][0]
    assert first["token_ids"] == again["token_ids"]
    assert first["prompt_token_ids"] == again["prompt_token_ids"] == ids
    assert first["finish_reason"] == "length" and len(first["token_ids"]) == 3
    logprobs = first["logprobs"]
    assert [first["text"][offset:][:1] for offset in logprobs["text_offset"]] == [t[:1] for t in logprobs["tokens"]]
    several = post(server, "/v1/completions", {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 3})
    assert [choice["index"] for choice in several["choices"]] == list(range(6))
    assert several["usage"]["prompt_tokens"] == 3
    drawn = [
        post(server, "/v1/completions", {"prompt": ids, "temperature": 1.5})["choices"][0]["text"] for _ in range(6)
    ]
    assert len(set(drawn)) > 1, "without a seed each answer has a stream of its own"


def test_the_text_ends_before_a_stop_string_and_the_record_after_it(server, policy):
    choice = ask(server, QUESTION, stop=["<answer>", "zzz"], seed=1)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "<answer>" not in choice["message"]["content"]
    (row,) = server.take().rows
    assert row.text.endswith("<answer>")
    trainable(policy, row)


def test_turns_of_a_session_are_one_row_of_the_very_tokens(server, policy):
    """A tool's answer in between is an observation: seen, not trained on."""
    first = ask(server, QUESTION, session="episode-1", seed=1)["choices"][0]
    reply = first["message"]["content"]
    second = ask(server, QUESTION, reply, "Try again: 12 + 32 =", session="episode-1", seed=2)
    second = second["choices"][0]
    known = first["prompt_token_ids"] + first["token_ids"]
    assert second["prompt_token_ids"][: len(known)] == known
    told = second["prompt_token_ids"][len(known) :]
    assert policy.tokenizer.decode(told) == "Try again: 12 + 32 =\n"
    ask(server, QUESTION, reply, "Another's.", session="episode-2")  # of another session: nothing of it is known
    assert [len(session.rows) for session in server.answers.sessions.open.values()] == [1, 1]
    (row,) = server.take("episode-1").rows
    a, b, c = len(first["token_ids"]), len(told), len(second["token_ids"])
    assert row.mask_S.tolist() == [True] * a + [False] * b + [True] * c
    assert row.turn_S.tolist() == [0] * (a + b) + [1] * c
    assert row.part_S.tolist() == [Part.RESPONSE] * a + [Part.OBSERVATION] * b + [Part.RESPONSE] * c
    trainable(policy, row)


def test_a_rewritten_history_begins_a_row(server, policy):
    ask(server, QUESTION, session="e")
    ask(server, QUESTION, "what the agent made of it", "And now?", session="e")
    ask(server, QUESTION, session="e")
    found = server.take("e").rows
    assert [row.mask_S.all().item() for row in found] == [True] * 3
    for row in found:
        trainable(policy, row)


def test_a_text_that_goes_on_after_an_end_begins_a_row_and_rewrites_nothing(server):
    """The text lacks the token that ended the answer, or the stop string; token ids have it, and extend the row."""

    def asked(session, prompt, **more):
        return post(server, f"/{session}/v1/completions", {"prompt": prompt, "seed": 1, **more})["choices"][0]

    def rewritten():
        return json.loads(urllib.request.urlopen(server.url + "/health", timeout=5).read())["rewritten"]

    first = asked("stop", "1 + 1 =", stop=["="], max_tokens=100)
    asked("stop", "1 + 1 =" + first["text"] + " and", max_tokens=5)
    assert first["finish_reason"] == "stop" and len(server.take("stop").rows) == 2
    whole = asked("ids", "1 + 1 =", stop=["="], max_tokens=100)
    asked("ids", [*whole["prompt_token_ids"], *whole["token_ids"], 5], max_tokens=5)
    assert len(server.take("ids").rows) == 1
    cut = asked("cut", "1 + 1 =", max_tokens=5)
    asked("cut", "1 + 1 =" + cut["text"] + " and", max_tokens=5)
    assert cut["finish_reason"] == "length" and len(server.take("cut").rows) == 1 and rewritten() == 0
    asked("other", "1 + 1 =", max_tokens=5)
    asked("other", "2 + 2 = 4, and", max_tokens=5)
    assert len(server.take("other").rows) == 2 and rewritten() == 1


def test_what_is_on_file_is_what_was_drawn(server, policy):
    ask(server, QUESTION, session="e", n=2)
    post(server, "/e/v1/completions", {"prompt": "1 + 1 ="})
    (kept,) = read(server.answers.sessions.record)
    for ours, theirs in zip(server.take("e").rows, kept.rows, strict=True):
        assert torch.equal(ours.decisions.ids_NL, theirs.decisions.ids_NL)
        for name in ("behavior_S", "version_S", "mask_S", "reward_S", "part_S", "turn_S"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        assert (ours.text, ours.stop, ours.sampling) == (theirs.text, theirs.stop, theirs.sampling)
    with server.answers.sessions.record.open("a") as file:
        file.write('{"session": "torn')
    assert len(read(server.answers.sessions.record)[0].exchanges) == 3
    ask(server, QUESTION, session="f")  # by a server that was started again, say: a torn line damages no other
    assert [len(session.exchanges) for session in read(server.answers.sessions.record)] == [3, 1]


def test_new_weights_arrive_between_requests(server, policy):
    server.load(4, policy.state_dict())
    assert set(ask(server, QUESTION)["choices"][0]["token_versions"]) == {4}
    health = json.loads(urllib.request.urlopen(server.url + "/health", timeout=5).read())
    assert health == {"version": 4, "under_way": 0, "answered": 1, "drops": {}, "rewritten": 0, "error": ""}


def test_requests_that_arrive_together_are_drawn_together(server):
    """A crowd is answered in about as many steps as one answer takes, not in as many as all of them."""
    driver = server.driver
    steps, own = [], driver.engine.step
    driver.engine.step = lambda: steps.append(1) or own()
    body = {"prompt": QUESTION, "max_tokens": 30}
    with driver._engine_lock, ThreadPoolExecutor(8) as pool:  # they wait for the engine, and go in at once
        futures = [pool.submit(post, server, "/v1/completions", body) for _ in range(8)]
        while driver.under_way < 8:
            threading.Event().wait(0.01)
        driver._engine_lock.release()
        try:
            assert all(len(future.result()["choices"]) == 1 for future in futures)
        finally:
            driver._engine_lock.acquire()
    assert len(steps) <= 45, len(steps)


def test_refused_in_a_sentence(server):
    chat, plain = "/v1/chat/completions", "/v1/completions"
    status, said = refused(server, "/v2/nothing", {})
    assert status == 404 and all(f"/v1/{path}" in said for path in ("chat/completions", "completions", "models"))
    assert "/EPISODE/v1/reward" in said
    for path, body, sentence in [
        (chat, {"messages": []}, "messages must be a list"),
        (chat, {"messages": [{"role": "user"}]}, "content, which is text"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content, which is text"),
        (chat, {"messages": [{"role": "assistant", "content": None, "tool_calls": 5}]}, "tool_calls must be a list"),
        (chat, {"messages": [{"role": "user", "content": "", "tool_calls": [{"function": 5}]}]}, "tool_calls must be"),
        (plain, {"prompt": ""}, "prompt must be a text"),
        (plain, {"prompt": [1, 100_000]}, "token ids"),
        (plain, {"prompt": "a", "max_tokens": 0}, "max_tokens is 0"),
        (plain, {"prompt": "a", "max_tokens": 5000}, "context of 512"),
        (plain, {"prompt": "a", "temperature": "hot"}, "temperature is 'hot'"),
        (plain, {"prompt": "a", "temperature": -1}, "temperature is -1"),
        (plain, {"prompt": "a", "presence_penalty": 0.5}, "presence_penalty=0.5"),
        (
            chat,
            {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]},
            "chat template refuses the request",  # a tool without its function
        ),
    ]:
        status, message = refused(server, path, body)
        assert status == 400 and sentence in message, (body, message)
    assert refused(server, plain, None, data=b"no json")[0] == 400
    assert server.take().exchanges == ()


def test_fixed_sampling_is_the_servers_own(policy):
    engine = Native(slots=2, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    with CompletionServer(engine, policy, SAMPLING, fixed=True, keep=1) as server:
        ask(server, QUESTION, session="a", temperature=0, top_p=0.1, max_tokens=6)
        ask(server, QUESTION, session="b", temperature=0)
        assert server.take("a").exchanges == (), "the newest answer is kept"
        (row,) = server.take("b").rows
    assert (row.sampling.temperature, row.sampling.top_p) == (1.0, 1.0)


@pytest.mark.slow  # its import takes seconds
def test_openais_own_client(server, policy):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/agent/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model="tiny", messages=messages, logprobs=True, seed=1, temperature=0.9)
    choice = answer.choices[0]
    assert choice.message.content == policy.decode(choice.token_ids)
    (recorded,) = server.answers.sessions.open["agent"].exchanges
    assert [item.logprob for item in choice.logprobs.content] == recorded.rollout.behavior_S.tolist()
    pieces = client.chat.completions.create(model="tiny", messages=messages, seed=1, temperature=0.9, stream=True)
    assert "".join(piece.choices[0].delta.content for piece in pieces) == choice.message.content
    plain = client.completions.create(model="tiny", prompt=QUESTION, max_tokens=4, logprobs=1)
    assert len(plain.choices[0].logprobs.token_logprobs) == 4
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.BadRequestError, match="frequency_penalty"):
        client.chat.completions.create(model="tiny", messages=messages, frequency_penalty=1.0)
    assert len(server.take("agent").rows) == 3


def test_the_model_in_the_package_is_served_by_its_name(tmp_path):
    assert api.to_evaluate("gimbal-tiny", "demo", tmp_path).policy == CausalLM()
    assert api.version("gimbal-tiny", tmp_path) == 0


def test_a_run_on_written_answers_is_served_by_an_engine_that_samples(capsys):
    """It was started with Offline(), and every request was refused."""
    run = sft()
    assert serving_engine(run, "runs/sft-0") == run.held_out.engine and not capsys.readouterr().err
    for held_out in (None, replace(run.held_out, engine=run.engine)):
        assert serving_engine(replace(run, held_out=held_out), "runs/sft-0") == Native()
        assert "runs/sft-0 samples nothing (engine=Offline()); engine=Native() serves it" in capsys.readouterr().err
    other = replace(run, engine=VLLM(), held_out=None)
    assert serving_engine(other, "x") == VLLM() and not capsys.readouterr().err


@pytest.mark.slow
def test_gimbal_serve(tmp_path, policy):
    """The command, as a script starts it in the background (SIGINT ignored) and ends it."""
    policy.save(tmp_path / "model")
    command = [
        sys.executable,
        "-m",
        "gimbal",
        "serve",
        "model",
        "--port",
        "0",
        "--fixed",
        "engine.slots=4",
        "threads=1",
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        line = process.stdout.readline()
        url = line.split()[1].removesuffix("/v1,")
        data = json.dumps({"prompt": QUESTION, "max_tokens": 5, "temperature": 0}).encode()
        with urllib.request.urlopen(urllib.request.Request(url + "/x/v1/completions", data, JSON), timeout=30) as reply:
            assert len(json.loads(reply.read())["choices"][0]["token_ids"]) == 5
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130, process.stderr.read()
    finally:
        process.kill()
    (session,) = read(tmp_path / "exchanges.jsonl")
    (row,) = session.rows
    assert row.sampling.temperature == 1.0
