"""Preferences about form alone: the pairs, the two ends of the cold start's loss, and its generalisation factor."""

from dataclasses import replace

import pytest
import torch

from gimbal.environments.dataset import Rows
from gimbal.environments.form_pairs import FormPairs
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.ops import SequenceSum
from gimbal.recipes.core.dpo import dpo
from gimbal.recipes.papers.data.specs import specs
from gimbal.recipes.papers.data.specs_start import specs_start
from gimbal.records import TrainBatch

GOOD = "<think>2+2=4</think><answer>4</answer>"
OWN = Rows(rows=[{"prompt": "2+2=", "answer": "4", "completion": GOOD}])


@pytest.mark.parametrize(
    ("fault", "bad"),
    [
        ("bare", "2+2=4 4"),
        ("unmarked", "<think>2+2=4</think> 4"),
        ("spelt", "<think>2+2=4</think> The answer is 4"),
    ],
)
def test_by_hand(fault, bad):
    columns = FormPairs(tasks=OWN, faults=(fault,))[0].columns
    assert columns["completion"] == [GOOD, bad] and columns["score"] == [1.0, 0.0]


def test_faults_are_drawn_by_the_index_and_content_stays():
    pairs = [FormPairs()[i] for i in range(30)]
    assert pairs[7] == FormPairs()[7]
    kinds = {("<think>" in bad, "The answer is" in bad) for _, bad in (p.columns["completion"] for p in pairs)}
    assert kinds == {(False, False), (True, False), (True, True)}
    assert all(p.columns["completion"][1].endswith(f" {p.answer}") for p in pairs)


@pytest.mark.parametrize("tasks", [Rows(rows=[{"prompt": "a"}]), Rows(rows=[{"prompt": "a", "completion": "no tags"}])])
def test_what_has_no_form_cannot_lose_it(tasks):
    with pytest.raises(ValueError, match="needs well-formed ones"):
        FormPairs(tasks=tasks)[0]
    with pytest.raises(ValueError, match="faults is empty"):
        FormPairs(faults=())


def gradient(beta, coef):
    g = torch.Generator().manual_seed(0)
    logprob_NS = -torch.randn(4, 3, generator=g, dtype=torch.float64).abs()
    reward_NS = torch.zeros(4, 3, dtype=torch.float64)
    reward_NS[:, 0] = torch.tensor([1.0, 0.0, 0.0, 1.0])
    b = TrainBatch(
        mask_NS=torch.ones(4, 3, dtype=torch.bool),
        reward_NS=reward_NS,
        reference_NS=logprob_NS + 0.3 * torch.randn(4, 3, generator=g, dtype=torch.float64),
        group_N=torch.tensor([0, 0, 1, 1]),
    )
    x = logprob_NS.clone().requires_grad_()
    parts = [DirectPreference(beta=beta)] if beta else []
    parts += [RightLikelihood(coef=coef)] if coef else []
    loss = sum((part(x, b).loss_NS * SequenceSum()(part.counted(b))).sum() for part in parts)
    return torch.autograd.grad(loss, x)[0], b


def test_reduces_to_dpo_without_the_imitation():
    x = replace(specs_start(), regularisers=(), tasks=dpo().tasks)
    assert x == dpo()
    difference = gradient(0.1, 1.0)[0] - gradient(0.0, 1.0)[0]
    torch.testing.assert_close(gradient(0.1, 0.0)[0], difference, atol=1e-12, rtol=0)


def test_reduces_to_imitation_of_the_chosen_without_the_preference():
    both, b = gradient(1e-9, 1.0)
    chosen_N = b.reward_NS.sum(-1)
    expected = (-chosen_N / chosen_N.sum())[:, None] * b.mask_NS  # mean over the chosen of -log pi
    torch.testing.assert_close(both, expected, atol=1e-6, rtol=0)


def test_the_second_stage_pays_half_for_form():
    assert [reward.weight for reward in specs().rewards] == [1.0, 0.5]
