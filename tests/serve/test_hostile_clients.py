"""What one client does must cost that client and nobody else."""

import asyncio
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_completion_server import JSON, QUESTION, SAMPLING, ask, post, refused

from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM
from gimbal.serve import app, driver
from gimbal.serve.asked import understood
from gimbal.serve.exchanges import read
from gimbal.serve.server import CompletionServer

PLAIN, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


@pytest.fixture
def server(policy, tmp_path):
    engine = Native(slots=8, precision="float32").start(policy)
    engine.load(3, policy.state_dict())
    with CompletionServer(engine, policy, SAMPLING, name="tiny", record=tmp_path / "exchanges.jsonl") as made:
        yield made
        assert len(post(made, PLAIN, {"prompt": QUESTION})["choices"]) == 1, "it serves after whatever was done to it"


def raw(server, *pieces, host=None):
    """Bytes to the server as they are; the first line of its answer."""
    address = server.url.removeprefix("http://")
    name, port = address.rsplit(":", 1)
    with socket.create_connection((name, int(port)), timeout=20) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return connection.recv(100).split(b"\r\n")[0].decode()


def health(server):
    return json.loads(urllib.request.urlopen(server.url + "/health", timeout=5).read())


@pytest.mark.parametrize(
    "body, sentence",
    [
        (b'{"prompt": "a", "temperature": NaN}', "NaN, which is not a JSON number"),
        (b'{"prompt": "a", "temperature": Infinity}', "Infinity, which is not a JSON number"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature is inf"),
        (b'{"prompt": "a", "temperature": 1000}', "between 0 and 100"),
        (b'{"prompt": "a", "top_k": 1180591620717411303424}', "top_k is 1180591620717411303424"),
        (b'{"prompt": "a", "seed": 1180591620717411303424}', "seed is"),
        (b'{"prompt": "a", "top_p": 0}', "top_p is 0"),
        (b'{"prompt": "a", "min_p": -0.5}', "min_p is -0.5"),
        (b'{"prompt": [true]}', "prompt must be a text"),
        (b'{"prompt": [1.0]}', "prompt must be a text"),
        (b'{"prompt": {"a": 1}}', "prompt must be a text"),
        (b'{"prompt": "a", "n": 1000000000}', "n is 1000000000; it must lie between 1 and 128"),
        (b'{"prompt": ["a", "b", "c"], "n": 128}', "answered at most 128 times"),
        (b'{"prompt": "a", "n": true}', "n is True"),
        (b'{"prompt": "a", "max_tokens": 1e3}', "max_tokens is 1000.0"),
        (b'{"prompt": "a", "max_tokens": 1000000000}', "between 1 and 10000000"),
        (b'{"prompt": "a", "stop": 5}', "stop is 5"),
        (b'{"prompt": "a", "stop": ["' + b"x" * 300 + b'"]}', "of 1 to 256 characters"),
        (b'{"prompt": "a", "stream": "yes"}', "stream is 'yes'"),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"prompt": "a", "top_k": ' + b"9" * 5000 + b"}", "holds a number of more than 4,300 digits$"),
        (b"[1, 2]", "not a JSON object"),
        (b"\xff\xff", "not UTF-8: byte 0 is 0xff"),
        (b'{"prompt"', "not JSON (Expecting"),
        (b'{"prompt": "a", "temperature": NaN}', "holds NaN"),
    ],
)
def test_a_value_out_of_bounds_is_refused(body, sentence):
    for fixed in (False, True):  # what is ignored too: nobody asks for a top_p of 5 and means it
        with pytest.raises(ValueError, match=sentence.replace("(", r"\(")) as caught:
            understood(body, "", chat=False, own=SAMPLING, fixed=fixed)
        assert len(str(caught.value)) < 300


def test_bad_requests_end_themselves(server):
    for body in (b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a", "top_k": 1180591620717411303424}'):
        assert refused(server, PLAIN, None, data=body)[0] == 400
    assert refused(server, PLAIN, {"prompt": [True]})[0] == 400
    assert refused(server, PLAIN, {"prompt": [-1]})[0] == 400
    assert refused(server, CHAT, {"messages": 5})[0] == 400
    for part in ({"type": "text"}, {"type": "text", "text": None}, {"type": "text", "text": 5}):
        status, said = refused(server, CHAT, {"messages": [{"role": "user", "content": [part]}]})
        assert status == 400 and "content, which is text" in said
    assert refused(server, "/" + "s" * 300 + PLAIN, {"prompt": "a"})[0] == 400


def test_what_cannot_fit_is_refused_before_it_is_encoded(server, policy, monkeypatch):
    encoded = []
    tokenizer = type(policy.tokenizer)
    own = tokenizer.encode
    monkeypatch.setattr(
        tokenizer, "encode", lambda self, text, **how: encoded.append(len(text)) or own(self, text, **how)
    )
    status, message = refused(server, PLAIN, {"prompt": "a" * 3_000_000})
    assert (status, encoded) == (400, []) and "3000000 characters" in message
    assert refused(server, CHAT, {"messages": [{"role": "user", "content": "a" * 3_000_000}]})[0] == 400
    assert encoded == []


def test_a_body_has_a_size(server):
    assert (
        refused(server, PLAIN, None, data=iter([b" " * (app.BODY_BYTES + 1)]))[0] == 413
    )  # in chunks: it is read that far
    # One that says how large it is need not be read at all.
    for declared in (str(app.BODY_BYTES + 1), "9" * 15):
        head = f"POST {PLAIN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {declared}\r\n\r\n"
        assert raw(server, head.encode()) == "HTTP/1.1 413 Request Entity Too Large"
    # A client that sends all of it before it reads is told, and finds no closed connection.
    assert refused(server, PLAIN, None, data=b" " * (2 * app.BODY_BYTES))[0] == 413


def test_a_path_that_is_no_text_is_no_session(server):
    """Bytes outside of UTF-8 all decode to one character: two such names would be one session, and a reward would end another's."""
    for name in ("a%ffb", "a%feb", "a%0ab", "a%1bb"):
        status, said = refused(server, f"/{name}{PLAIN}", {"prompt": "a"})
        assert status == 400 and "printable text in UTF-8" in said
    assert post(server, "/%C3%A9t%C3%A9" + PLAIN, {"prompt": "1 + 1 ="})["choices"]


def test_an_engine_error_ends_one_answer(server):
    """Five are drawn together; one makes every step raise in which it is. The others get what they would have had anyway."""
    engine, own = server.driver.engine, server.driver.engine.step

    def step():
        if any(row.request.task.prompt == "poison" for row in [*engine.rows, *engine.queue]):
            raise RuntimeError("out of memory")
        return own()

    alone = [post(server, PLAIN, {"prompt": f"{n} + 1 =", "seed": n})["choices"][0] for n in range(4)]
    engine.step = step
    with server.driver._engine_lock, ThreadPoolExecutor(5) as pool:
        bad = pool.submit(refused, server, PLAIN, {"prompt": "poison"})
        futures = [pool.submit(post, server, PLAIN, {"prompt": f"{n} + 1 =", "seed": n}) for n in range(4)]
        while server.driver.under_way < 5:
            time.sleep(0.01)
        server.driver._engine_lock.release()
        try:
            assert bad.result() == (500, "the engine failed: out of memory")
            crowd = [future.result()["choices"][0] for future in futures]
        finally:
            server.driver._engine_lock.acquire()
    assert [choice["token_ids"] for choice in crowd] == [choice["token_ids"] for choice in alone]
    assert health(server)["drops"] == {"engine error": 1}
    assert "poison" not in {
        exchange.rollout.task.prompt for exchange in read(server.answers.sessions.record)[0].exchanges
    }
    assert len(post(server, PLAIN, {"prompt": ["a", "b"]})["choices"]) == 2, (
        "and those that come later are drawn together"
    )


def test_an_engine_that_cannot_let_go_is_said_to_be_gone(policy):
    engine = Native(slots=2, precision="float32").start(policy)
    engine.load(0, policy.state_dict())

    def broken(*_):
        raise RuntimeError("the device is lost")

    engine.step, engine.cancel = broken, broken
    with CompletionServer(engine, policy, SAMPLING) as server:
        for _ in range(2):
            assert refused(server, PLAIN, {"prompt": "a"}) == (
                500,
                "the engine failed and cannot continue: the device is lost",
            )
        with pytest.raises(urllib.error.HTTPError) as caught:
            health(server)
        assert caught.value.code == 500


def test_more_answers_than_there_may_be_are_refused(server, monkeypatch):
    monkeypatch.setattr(server.driver, "most", 3)
    assert refused(server, PLAIN, {"prompt": "a", "n": 4}) == (
        429,
        "3 answers are in progress, the most that this server allows; try again in a moment",
    )
    while health(server)["under_way"]:
        time.sleep(0.01)
    assert health(server)["drops"] == {"busy": 4}, "the three that had room are given up with the fourth"
    assert len(post(server, PLAIN, {"prompt": "a", "n": 3})["choices"]) == 3
    assert driver.MOST_WAITING >= 128, "one request may always be answered"


def test_a_client_that_leaves_is_drawn_for_no_longer(server):
    body = json.dumps({"prompt": QUESTION, "max_tokens": 400, "stop": "never"}).encode()
    head = f"POST {PLAIN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    name, port = server.url.removeprefix("http://").rsplit(":", 1)
    with server.driver._engine_lock, socket.create_connection((name, int(port))) as connection:
        connection.sendall(head.encode() + body)
        while not server.driver.under_way:
            time.sleep(0.01)
    while server.driver.under_way:
        time.sleep(0.01)
    assert health(server)["drops"] == {"client gone": 1}
    assert server.take().exchanges == ()
    assert server.driver.engine.in_flight == 0


@pytest.mark.parametrize(
    "host, status",
    [
        ("attacker.example:80", 403),
        ("127.0.0.1.attacker.example", 403),
        ("", 403),
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
    ],
)
def test_other_names_are_not_answered(server, host, status):
    """A page of attacker.example that resolves to 127.0.0.1 reads nothing here."""
    assert raw(server, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split()[1] == str(status)


def test_a_form_of_another_site_draws_nothing(server):
    request = urllib.request.Request(server.url + PLAIN, b'{"prompt": "a"}', {"Content-Type": "text/plain"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5)
    assert caught.value.code == 415 and server.driver.answered == 0


def test_slow_connections_hold_no_threads(server, monkeypatch):
    monkeypatch.setattr(app, "BODY_SECONDS", 1)
    name, port = server.url.removeprefix("http://").rsplit(":", 1)
    before = threading.active_count()
    slow = [socket.create_connection((name, int(port)), timeout=20) for _ in range(300)]
    try:
        for connection in slow[:150]:  # a body that never comes whole; the others say nothing at all
            connection.sendall(
                f"POST {PLAIN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode()
            )
        assert len(ask(server, QUESTION)["choices"]) == 1
        assert threading.active_count() <= before + 8
        assert slow[0].recv(100).split(b"\r\n")[0] == b"HTTP/1.1 408 Request Timeout"
        monkeypatch.setattr(app, "BODY_SECONDS", 0.5)
    finally:
        for connection in slow:
            connection.close()


def test_a_connection_that_asks_nothing_is_closed(monkeypatch):
    class Transport:
        aborted = False

        def abort(self):
            self.aborted = True

    class Connection:
        def __init__(self, cycle):
            self.cycle, self.transport = cycle, Transport()

    class Server:
        pass

    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)
    silent, asking, server = Connection(None), Connection(object()), Server()
    server.server_state = Server()
    server.server_state.connections = {silent, asking}

    async def watched():
        watch = asyncio.create_task(app.close_idle(server))
        await asyncio.sleep(0.2)
        watch.cancel()

    asyncio.run(watched())
    assert silent.transport.aborted and not asking.transport.aborted


def test_memory_holds_the_newest_answers(policy):
    engine = Native(slots=4, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    with CompletionServer(engine, policy, SAMPLING, keep=3) as server:
        for number in range(5):
            post(server, "/one" + PLAIN, {"prompt": f"{number} =", "max_tokens": 2})
        post(server, "/two" + PLAIN, {"prompt": "a", "max_tokens": 2})
        assert [exchange.rollout.task.prompt for exchange in server.answers.sessions.open["one"].exchanges] == [
            "3 =",
            "4 =",
        ]
        assert len(server.take("two").rows) == 1


def test_a_record_that_cannot_be_written_is_an_error_of_the_request(policy, tmp_path):
    engine = Native(slots=4, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    with CompletionServer(engine, policy, SAMPLING, record=tmp_path / "file.jsonl") as server:
        (tmp_path / "file.jsonl").unlink()
        (tmp_path / "file.jsonl").mkdir()
        status, message = refused(server, PLAIN, {"prompt": "a"})
        assert status == 500 and "Is a directory" in message
        (tmp_path / "file.jsonl").rmdir()
        assert post(server, PLAIN, {"prompt": "a"})["choices"]


def events(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body | {"stream": True}).encode(), JSON)
    with urllib.request.urlopen(request, timeout=30) as reply:
        lines = [line for line in reply.read().decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_comes_as_it_is_drawn(server, monkeypatch):
    monkeypatch.setattr(driver, "PROGRESS_SECONDS", 0.0)
    body = {"prompt": QUESTION + "\n", "seed": 3, "n": 2}
    whole = post(server, PLAIN, body)["choices"]
    chunks = events(server, PLAIN, body | {"stream_options": {"include_usage": True}})
    assert chunks.pop()["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in whole)
    for number, choice in enumerate(whole):
        pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == number]
        assert len(pieces) > 3, "in many pieces"
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces][:-1] == [None] * (len(pieces) - 1)
        assert pieces[-1]["token_ids"] == choice["token_ids"]


def test_a_stream_never_says_a_stop_string(server, monkeypatch):
    monkeypatch.setattr(driver, "PROGRESS_SECONDS", 0.0)
    body = {"messages": [{"role": "user", "content": QUESTION}], "stop": ["<answer>"], "seed": 1}
    whole = post(server, CHAT, body)["choices"][0]["message"]["content"]
    said = "".join(chunk["choices"][0]["delta"]["content"] for chunk in events(server, CHAT, body))
    assert said == whole and "<a" not in said


TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}\n{% endfor %}"
)


def test_tools_and_silence_are_read_and_recorded(server, policy, monkeypatch):
    monkeypatch.setattr(policy.tokenizer, "chat_template", TEMPLATE)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "2"},
    ]
    post(server, CHAT, {"messages": messages, "tools": tools, "max_tokens": 2})
    (exchange,) = read(server.answers.sessions.record)[0].exchanges
    assert exchange.rollout.task.prompt == '[add]<user>1+1<assistant>add({"a": 1})<tool>2'
    assert exchange.rollout.task.columns["tools"] == tools
    assert exchange.rollout.task.columns["messages"] == messages
