"""DeGRPO and DePO: means by part, clips by part."""

import pytest
import torch

from gimbal.objectives import ClippedRatio
from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.ops import TokenMean
from gimbal.ops.part_mean import PartMean
from gimbal.records import Part, TrainBatch

MASK = torch.tensor([[True, True, True], [True, True, False]])
PART = torch.tensor([[Part.CONTROL, Part.RESPONSE, Part.RESPONSE], [Part.CONTROL, Part.RESPONSE, Part.RESPONSE]])


def close(ours, theirs, atol=1e-6):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=0)


def test_control_and_response_have_means_of_their_own():
    expected = torch.tensor([[0.5 * 0.001, 1 / 3, 1 / 3], [0.5 * 0.001, 1 / 3, 0.0]])
    close(PartMean(control=0.001)(MASK, PART), expected)


def test_all_response_is_the_token_mean():
    close(PartMean()(MASK), TokenMean()(MASK))
    close(PartMean(response=0.5)(MASK, torch.zeros_like(PART)), 0.5 * TokenMean()(MASK))


def test_weights_in_proportion_to_the_counts_are_the_token_mean():
    # alpha = N / (sum of all tokens), up to the common factor that the card's form leaves out.
    close(PartMean(control=2 / 5, response=3 / 5)(MASK, PART), TokenMean()(MASK))


def test_a_part_that_is_absent_weighs_nothing():
    assert PartMean(latent=9.0)(MASK, PART).sum() == pytest.approx(2.0)
    assert (PartMean()(torch.zeros_like(MASK), PART) == 0).all()


def both(objective, parts):
    g = torch.Generator().manual_seed(0)
    logprob_NS = -torch.rand(2, 3, generator=g, dtype=torch.float64)
    b = TrainBatch(
        mask_NS=MASK,
        part_NS=parts,
        proximal_NS=logprob_NS + 0.5 * torch.randn(2, 3, generator=g, dtype=torch.float64),
        advantage_NS=torch.randn(2, 3, generator=g, dtype=torch.float64),
    )
    logprob_NS.requires_grad_()
    loss_NS = objective(logprob_NS, b).loss_NS
    return loss_NS.detach(), torch.autograd.grad(loss_NS.sum(), logprob_NS)[0]


@pytest.mark.parametrize(
    ("objective", "parts"),
    [(PartsClipped(), torch.zeros_like(PART)), (PartsClipped(latent_low=0.2, latent_high=0.28), PART + 2)],
    ids=["no latents", "equal bounds"],
)
def test_without_latents_or_with_equal_bounds_it_is_the_clipped_ratio(objective, parts):
    same = ClippedRatio(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    for ours, theirs in zip(both(objective, parts), both(same, parts), strict=True):
        close(ours, theirs)


def test_latents_have_bounds_of_their_own():
    parts = torch.where(PART == Part.CONTROL, Part.LATENT, PART)
    loss, gradient = both(PartsClipped(latent_low=0.0, latent_high=0.0), parts)
    tokens = both(PartsClipped(), parts)
    close(loss[:, 1:], tokens[0][:, 1:])
    tight = both(ClippedRatio(clip_low=0.0, clip_high=0.0, dual_clip=3.0), parts)
    close(loss[:, 0], tight[0][:, 0])
    close(gradient[:, 0], tight[1][:, 0])


def test_latents_of_weight_0_leave_the_tokens_alone():
    parts = torch.where(PART == Part.CONTROL, Part.LATENT, PART)
    weight = PartMean(latent=0.0)(MASK, parts)
    assert (weight[:, 0] == 0).all()
    close(weight[:, 1:], TokenMean()(MASK[:, 1:]))
