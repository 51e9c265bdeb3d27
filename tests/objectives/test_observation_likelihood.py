"""ObservationLikelihood: where its loss lies, that nothing else does, and its mean over all observed tokens."""

import pytest
import torch

from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops import TokenMean
from gimbal.records import Part, TrainBatch

SAID, OWN = int(Part.OBSERVATION), int(Part.RESPONSE)
PART = torch.tensor([[0, 2, 2, 2, 0, 2, 2], [0, 0, 2, 2, 0, 0, 0], [0] * 7])
LENGTH = torch.tensor([7, 5, 3])
THERE = torch.arange(7) < LENGTH[:, None]


def batch():
    logprob_NS = -torch.rand(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return logprob_NS, TrainBatch(mask_NS=THERE & (PART == OWN), part_NS=PART)


def loss_of(objective, logprob_NS, b):
    x = logprob_NS.clone().requires_grad_()
    loss = (objective(x, b).loss_NS * TokenMean()(objective.counted(b))).sum()
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def test_the_mean_over_observed_tokens():
    logprob_NS, b = batch()
    loss, gradient = loss_of(ObservationLikelihood(coef=0.05), logprob_NS, b)
    observed_NS = PART == SAID
    torch.testing.assert_close(loss, -0.05 * logprob_NS[observed_NS].sum() / 7)
    torch.testing.assert_close(gradient, torch.where(observed_NS, -0.05 / 7, 0.0).double())


def test_a_skipped_prefix_has_no_loss_but_stays_in_the_mean():
    logprob_NS, b = batch()
    gradient = loss_of(ObservationLikelihood(coef=1.0, skip=1), logprob_NS, b)[1]
    expected_NS = torch.zeros(3, 7, dtype=torch.float64)
    expected_NS[0, [2, 3, 6]] = expected_NS[1, 3] = -1 / 7
    torch.testing.assert_close(gradient, expected_NS)
    gradient = loss_of(ObservationLikelihood(coef=1.0, skip=2), logprob_NS, b)[1]
    expected_NS[:] = 0
    expected_NS[0, 3] = -1 / 7
    torch.testing.assert_close(gradient, expected_NS)
    assert (loss_of(ObservationLikelihood(skip=9), logprob_NS, b)[1] == 0).all()


def test_alone_it_is_likelihood_of_observations():
    logprob_NS, b = batch()
    observed = TrainBatch(mask_NS=PART == SAID)
    for mine, theirs in zip(
        loss_of(ObservationLikelihood(coef=1.0), logprob_NS, b),
        loss_of(Likelihood(), logprob_NS, observed),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_without_observations_or_weight_there_is_nothing():
    logprob_NS, b = batch()
    for objective, one in ((ObservationLikelihood(), TrainBatch(mask_NS=THERE)), (ObservationLikelihood(coef=0.0), b)):
        loss, gradient = loss_of(objective, logprob_NS, one)
        assert loss == 0 and (gradient == 0).all()


@pytest.mark.parametrize("wrong", [{"coef": -1.0}, {"skip": -1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="ObservationLikelihood"):
        ObservationLikelihood(**wrong)
