"""Agents that know nothing but an address are trained: what they asked, and what they were rewarded with, becomes episodes."""

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import torch
from test_completion_server import QUESTION, SAMPLING, ask, post, refused

from gimbal.advantages import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.engines.native import Native
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.policy_gradient import PolicyGradient
from gimbal.objectives import ClippedRatio
from gimbal.policies.token import CausalLM
from gimbal.records import Drop, Group, Task
from gimbal.serve.exchanges import read
from gimbal.serve.server import CompletionServer

CHAT = "/v1/chat/completions"
TASK = Task(id="sum", prompt=QUESTION)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}"
    "{% for message in messages %}{{ message.content }}{{ eos_token if message.role == 'assistant' else '\n' }}{% endfor %}"
)


@pytest.fixture
def policy():
    made = CausalLM().load()
    made.tokenizer.chat_template = TEMPLATE
    return made


def serving(policy, **more):
    engine = Native(slots=8, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    return CompletionServer(engine, policy, SAMPLING, **more)


def health(url):
    return json.loads(urllib.request.urlopen(url + "/health", timeout=5).read())


def agent(server, name, *, rewrites=False):
    """Asks, calls a tool, asks again, and says what that was worth; it sees text alone. The tokens that it was answered with."""
    messages = [{"role": "user", "content": QUESTION}]
    path, answers = f"/{name}{CHAT}", []
    for said in ("43", None):
        choice = post(server, path, {"messages": messages, "tools": TOOLS})["choices"][0]
        answers.append(choice["token_ids"])
        told = [choice["message"], {"role": "tool", "content": said, "tool_call_id": "1"}]
        messages = [{"role": "user", "content": "in short: 43"}] if rewrites else [*messages, *told]
    post(server, f"/{name}/v1/reward", {"score": len(choice["message"]["content"]) % 7})
    return answers


def test_an_agent_behind_an_address_is_trained(policy, tmp_path):
    """Two steps of four sessions: the learner's log-probabilities are those that were recorded, and the weights move."""
    optimization = Optimization(learning_rate=1e-3)
    learner = Learner(
        policy, PolicyGradient(objective=ClippedRatio(), advantage=GroupNormalized(), optimization=optimization)
    )
    with serving(policy, fixed=True, record=tmp_path / "exchanges.jsonl") as server:
        for step in range(2):
            said = [agent(server, f"{step}-{n}", rewrites=n == 3) for n in range(4)]
            episodes = tuple(server.episode(f"{step}-{n}", TASK, n) for n in range(4))
            assert [len(episode.rows) for episode in episodes] == [1, 1, 1, 2]
            for episode, answers in zip(episodes, said, strict=True):  # the very tokens, in their order
                drawn = [row.decisions.label_NS[0][row.mask_S].tolist() for row in episode.rows]
                assert list(chain(*drawn)) == list(chain(*answers))
            batch = learner.prepare(pack([Group(index=step, task=TASK, episodes=episodes)]))
            assert batch.episode_N.tolist() == [0, 1, 2, 3, 3]
            assert set(batch.version_NS[batch.mask_NS].tolist()) == {step}
            logprob_NS = learner.logprobs(batch.decisions, 1.0)
            mask_NS = batch.mask_NS
            torch.testing.assert_close(batch.behavior_NS[mask_NS], logprob_NS[mask_NS], atol=1e-4, rtol=0)
            assert not mask_NS[:3].all(), "what the tool said is told, not drawn"
            before = [weight.clone() for weight in policy.parameters()]
            learner.step(batch)
            assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
            server.load(learner.version, policy.state_dict())
        assert health(server.url)["rewritten"] == 2 and health(server.url)["drops"] == {}
    kept = read(tmp_path / "exchanges.jsonl")
    assert [session.name for session in kept] == [f"{step}-{n}" for step in range(2) for n in range(4)]
    for one, other in zip(episodes, [session.episode(TASK, n) for n, session in enumerate(kept[4:])], strict=True):
        assert one.score == other.score
        for a, b in zip(one.rows, other.rows, strict=True):
            assert torch.equal(a.decisions.ids_NL, b.decisions.ids_NL) and torch.equal(a.behavior_S, b.behavior_S)


def test_text_that_continues_an_answer_is_not_encoded_again(policy, monkeypatch):
    """Of completions too: a tokenizer need not write what was drawn as it was drawn."""
    encoded, own = [], type(policy.tokenizer).encode
    monkeypatch.setattr(
        type(policy.tokenizer), "encode", lambda self, text, **how: encoded.append(text) or own(self, text, **how)
    )
    with serving(policy) as server:
        first = post(server, "/s/v1/completions", {"prompt": "1 + 1 =", "max_tokens": 5, "seed": 3})["choices"][0]
        told = first["prompt_token_ids"] + first["token_ids"]
        more = {"prompt": "1 + 1 =" + first["text"] + "12", "max_tokens": 5}
        second = post(server, "/s/v1/completions", more)["choices"][0]
        assert second["prompt_token_ids"][: len(told)] == told and len(server.take("s").rows) == 1
    assert encoded == ["1 + 1 =", "12"]


def test_another_temperature_begins_a_row(policy):
    """The learner evaluates a row at one temperature."""
    with serving(policy) as server:
        reply = ask(server, QUESTION, session="s", seed=1)["choices"][0]["message"]["content"]
        ask(server, QUESTION, reply, "Again: 1 + 2 =", session="s", temperature=0.8, seed=2)
        server.reward("s", 1.0)
        episode = server.episode("s", TASK, 0)
    batch = pack([Group(index=0, task=TASK, episodes=(episode,))])
    assert [row.row for row in episode.rows] == [0, 1] and batch.return_N.tolist() == [1.0, 1.0]
    for number, temperature in enumerate((1.0, 0.8)):
        assert batch.facts["temperature"][number] == pytest.approx(temperature)
        logprob_NS, mask_S = policy.evaluate(batch.decisions, temperature=temperature).logprob_NS, batch.mask_NS[number]
        torch.testing.assert_close(
            batch.behavior_NS[number][mask_S], logprob_NS[number][mask_S].detach(), atol=1e-4, rtol=0
        )


def test_what_cannot_be_trained_on_is_a_counted_drop(policy):
    with serving(policy) as server:
        ask(server, QUESTION, session="greedy", temperature=0)
        ask(server, QUESTION, session="unjudged")
        server.reward("greedy", 1.0)
        made = [server.episode(name, TASK, 0) for name in ("greedy", "unjudged", "nobody")]
        assert all(isinstance(one, Drop) for one in made)
        reasons = {"untrainable": 1, "no reward": 1, "no answers": 1}
        assert [one.reason for one in made] == list(reasons) and made[1].drawn > 0
        assert health(server.url)["drops"] == reasons
    with serving(policy, keep=5) as server, pytest.raises(ValueError, match="keep=None"):
        server.episode("s", TASK, 0)


def test_a_reward_ends_a_session_once(policy):
    with serving(policy) as server:
        assert "has no answers" in refused(server, "/s/v1/reward", {"score": 1})[1]
        ask(server, QUESTION, session="s")
        for body in ({}, {"score": None}, {"score": "good"}, {"score": True}, {"score": 1e99}, {"score": 1, "of": 2}):
            assert refused(server, "/s/v1/reward", body)[0] == 400
        assert refused(server, "/s/v1/reward", None, data=b'{"score": NaN}')[0] == 400
        assert post(server, "/s/v1/reward", {"score": -0.5}) == {"session": "s", "score": -0.5}
        for path, body in [("reward", {"score": 1}), ("completions", {"prompt": "a"})]:
            assert "is over" in refused(server, f"/s/v1/{path}", body)[1]
        assert server.take("s").score == -0.5 and not server.take("s").exchanges
        assert "is over" in refused(server, "/s/v1/completions", {"prompt": "a"})[1]


def test_what_was_being_drawn_when_the_reward_came_is_refused_and_counted(policy):
    with serving(policy) as server:
        ask(server, QUESTION, session="s")
        with ThreadPoolExecutor(1) as pool:
            with server.driver._engine_lock:
                late = pool.submit(refused, server, "/s/v1/completions", {"prompt": "1 + 1 ="})
                while not server.driver.under_way:
                    time.sleep(0.01)
                server.reward("s", 1.0)
            assert "is over" in late.result()[1]
        assert health(server.url)["drops"] == {"after the reward": 1}
        assert len(server.episode("s", TASK, 0).rows) == 1
