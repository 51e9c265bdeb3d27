"""Prompts and single tokens that come again are encoded and decoded once."""

from dataclasses import replace

import pytest
import torch

from gimbal.engines.texts import Texts
from gimbal.policies.token import CausalLM, Tokens
from gimbal.records import Task

POLICY = CausalLM().load()
TASK = Task(id="a", prompt="1 + 1 =")


@pytest.fixture
def asked(monkeypatch):
    """What was asked of the policy itself."""
    seen, (encode, decode) = [], (POLICY.encode_task, POLICY.decode)
    monkeypatch.setattr(POLICY, "encode_task", lambda task: seen.append(task.id) or encode(task))
    monkeypatch.setattr(POLICY, "decode", lambda ids: seen.append(tuple(ids)) or decode(ids))
    return seen


def test_a_prompt_is_encoded_once_until_it_is_forgotten(asked):
    texts = Texts(POLICY)
    ids = texts.encode(TASK)
    assert ids == texts.encode(replace(TASK, id="b")) == POLICY.tokenizer.encode("1 + 1 =")
    assert texts.encode(replace(TASK, id="c", prompt="2")) != ids and asked == ["a", "c"]
    texts.forget()
    assert texts.encode(replace(TASK, id="d")) == ids and asked == ["a", "c", "d"]


def test_a_task_with_columns_may_be_encoded_by_them_and_is_not_kept(asked):
    texts = Texts(POLICY)
    given = replace(TASK, id="b", columns={"prompt_ids": [5, 6]})
    assert texts.encode(TASK) != [5, 6] == texts.encode(given) and texts.encode(TASK) != [5, 6]
    assert texts.encode(given) == [5, 6] and asked == ["a", "b", "b"]


def test_texts_are_the_policys(asked):
    texts, ids = Texts(POLICY), POLICY.tokenizer.encode("7 8")
    for own in (ids, ids[:1], ids[:1], ids[-1:], []):
        assert texts.decode(own) == POLICY.tokenizer.decode(own, skip_special_tokens=True)
    assert asked == [tuple(ids), tuple(ids[:1]), tuple(ids[-1:]), ()]


def test_rows_evaluated_without_gradient_or_in_inference_mode_can_be_trained_on():
    """Their layout is kept from one pass to the next."""
    rows = Tokens.stack([Tokens.row([1, 2, 3], [4, 5]), Tokens.row([1, 2, 3], [4, 6]), Tokens.row([1, 2], [7])])
    with torch.inference_mode():
        first = POLICY.evaluate(rows).logprob_NS.clone()
    with torch.no_grad():
        second = POLICY.evaluate(rows).logprob_NS
    third = POLICY.evaluate(rows).logprob_NS
    third.sum().backward()
    assert torch.equal(first, second) and torch.equal(second, third.detach())
    other = rows.select(torch.tensor([2, 0]))
    assert torch.allclose(POLICY.evaluate(other).logprob_NS, third[[2, 0]], atol=1e-5)
    POLICY.zero_grad()
