"""Rows behind one copy of their prompt give the log-probabilities and gradients of rows by themselves."""

import copy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "engines"))
from test_native import CONFIGS, policy

from gimbal.policies import token
from gimbal.policies.token import Tokens

ROWS = [([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([7, 8], [9, 1, 2, 3]), ([1, 2, 3], [4, 5, 6]), ([7, 8], [9])]


def evaluated(p, monkeypatch, sharing):
    with monkeypatch.context() as patch:
        if not sharing:
            patch.setattr(token, "shared", lambda *where: None)
        decisions = Tokens.stack([Tokens.row(prompt, drawn) for prompt, drawn in ROWS])
        evaluation = p.evaluate(decisions, columns=["entropy_NS"])
        weights = torch.arange(evaluation.logprob_NS.numel()).view_as(evaluation.logprob_NS) + 1.0
        parameters = list(p.parameters())
        gradients = torch.autograd.grad((evaluation.logprob_NS * weights).sum(), parameters)
        return evaluation, gradients


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_sharing_a_prompt_changes_nothing(family, monkeypatch):
    p = policy(family).double()
    (one, grads), (two, grads_2) = (evaluated(p, monkeypatch, sharing) for sharing in (True, False))
    torch.testing.assert_close(one.logprob_NS, two.logprob_NS, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one.columns["entropy_NS"], two.columns["entropy_NS"], atol=1e-5, rtol=1e-5)
    scale = max(g.abs().max() for g in grads_2)
    for a, b in zip(grads, grads_2, strict=True):
        torch.testing.assert_close(a / scale, b / scale, atol=1e-6, rtol=0)


def test_a_prompt_is_laid_out_once():
    decisions = Tokens.stack([Tokens.row(prompt, drawn) for prompt, drawn in ROWS])
    layout = token.shared(decisions.ids_NL, decisions.prompt_N, decisions.length_N)
    assert layout.ids_RL.shape == (2, 3 + 1 + 0 + 2)
    assert layout.ids_RL[0].tolist() == [1, 2, 3, 4, 4, 5]
    lone = Tokens.stack([Tokens.row([1], [2]), Tokens.row([3], [4])])
    assert token.shared(lone.ids_NL, lone.prompt_N, lone.length_N) is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_shared_prompt_is_seen_through_any_attention(attention, monkeypatch):
    p = copy.deepcopy(policy("qwen3")).double()  # the configuration is shared by all of its family
    p.model.set_attn_implementation(attention)
    (one, _), (two, _) = (evaluated(p, monkeypatch, sharing) for sharing in (True, False))
    torch.testing.assert_close(one.logprob_NS, two.logprob_NS, atol=1e-6, rtol=0)
