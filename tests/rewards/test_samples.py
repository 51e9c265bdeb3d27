"""What finished samples are worth: novelty in a group, and nearness to real digits."""

import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

import made

from gimbal.policies.paths import Paths
from gimbal.rewards.digits import DigitClass, DigitDistance, DigitLikeness, digits
from gimbal.rewards.novelty import SampleNovelty


def group_of(x_KD, task=made.TASK):
    def paths(x_D):
        side = round(len(x_D) ** 0.5)
        state = x_D.reshape(1, 1, 1, side, side).expand(1, 2, 1, side, side)
        one = torch.ones(1, 1)
        return Paths(
            state_NXD=state,
            level_NSL=torch.zeros(1, 1, 4),
            time_NS=one,
            amplitude_NS=one,
            mean_NSD=state[:, 1:],
            std_NS=one,
            label_N=torch.tensor([-1]),
            length_N=torch.tensor([1]),
            sampler="flow_sde",
            reduce="sum",
        )

    return made.group(task, *(made.rollout(task, decisions=paths(x), sample=k) for k, x in enumerate(x_KD)))


def test_novelty_is_the_distance_to_the_nearest_other():
    x_KD = torch.tensor([[0.0, 0, 0, 0], [3, 4, 0, 0], [3, 4, 1, 0]])
    assert SampleNovelty()(group_of(x_KD)) == pytest.approx([5.0, 1.0, 1.0], abs=1e-5)
    assert SampleNovelty()(group_of(x_KD[:1])) == [0.0]
    assert SampleNovelty()(group_of(x_KD[[1, 1]])) == pytest.approx([0.0, 0.0], abs=1e-3)
    turned = SampleNovelty(by="cosine")(group_of(torch.tensor([[1.0, 0, 0, 0], [5, 0, 0, 0], [0, 2, 0, 0]])))
    assert turned == pytest.approx([0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="finished samples"):
        SampleNovelty()(made.group(made.TASK, made.rollout()))


def test_of_real_fours_nineteen_in_twenty_are_real_and_of_other_digits_hardly_any():
    data_KD, label_K = digits()
    even_KD, of_K = data_KD[::2], label_K[::2]
    real = DigitLikeness(wanted=4)
    share = torch.tensor(real(group_of(even_KD[of_K == 4]))).mean()
    assert 0.93 < share < 0.97
    assert torch.tensor(real(group_of(even_KD[of_K == 8]))).mean() < 0.05
    assert torch.tensor(DigitLikeness(wanted=4, rows="even")(group_of(even_KD[of_K == 4]))).mean() == 1, (
        "each is its own"
    )


def test_the_logit_rises_without_end_where_nearness_falls():
    """A hole in the reward: along the classifier's own direction images earn more and more, and no digit looks like them."""
    data_KD, label_K = digits()
    four = data_KD[::2][label_K[::2] == 4][:1]
    logit = DigitClass(wanted=4, scale="logit")
    line = torch.eye(64)
    slope = torch.tensor(logit(group_of(four + line))) - torch.tensor(logit(group_of(four)))
    along = torch.cat([four + far * slope / slope.norm() for far in (0.0, 10.0, 20.0)])
    first, second, third = logit(group_of(along))
    assert second > first + 5 and third - second == pytest.approx(second - first, rel=1e-3)
    assert DigitLikeness(wanted=4)(group_of(along)) == [1.0, 0.0, 0.0]
    coarse = DigitLikeness(wanted=4, rows="even", scale="nearness", blocks=2)(group_of(along))
    assert coarse[0] == pytest.approx(0, abs=1e-3) and coarse[0] > coarse[1] > coarse[2]
    with pytest.raises(ValueError, match="scale=hit"):
        DigitClass(wanted=4, by="neighbours", scale="logit")


@pytest.mark.parametrize(
    "reward",
    [
        DigitClass(wanted=4, scale="logit"),
        DigitClass(wanted=4),
        DigitClass(wanted=4, scale="probability"),
        DigitDistance(),
        DigitLikeness(wanted=4, scale="nearness"),
        DigitLikeness(wanted=4, scale="nearness", blocks=2),
    ],
    ids=repr,
)
def test_a_reward_with_a_slope_gives_its_scores_and_their_gradient(reward):
    assert reward.flat == ""
    x_KD = torch.rand(3, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    asked_K = torch.full((3,), -1)
    x_KD.requires_grad_()
    score_K = reward.of_samples(x_KD, asked_K)
    assert reward(group_of(x_KD.detach())) == pytest.approx(score_K.tolist(), rel=1e-5)
    (slope_KD,) = torch.autograd.grad(score_K.sum(), x_KD)
    step_KD = 1e-2 * slope_KD / slope_KD.norm(dim=-1, keepdim=True)
    with torch.no_grad():
        rise_K = reward.of_samples(x_KD + step_KD, asked_K) - reward.of_samples(x_KD - step_KD, asked_K)
    torch.testing.assert_close(rise_K, 2e-2 * slope_KD.norm(dim=-1), rtol=2e-2, atol=1e-4)


def test_a_reward_without_a_slope_says_why():
    said = {
        DigitClass(wanted=4, scale="hit"): "set scale=log",
        DigitClass(wanted=4, by="neighbours", scale="probability"): "set by=linear",
        DigitLikeness(wanted=4): "set scale=nearness",
    }
    assert all(way in reward.flat for reward, way in said.items())


def test_the_class_that_was_asked_for_is_the_one_of_each_sample():
    x_KD = torch.rand(3, 64, generator=torch.Generator().manual_seed(0))
    asked = DigitClass().of_samples(x_KD, torch.tensor([1, 4, 9]))
    each = [DigitClass(wanted=wanted).of_samples(x_KD, torch.full((3,), -1))[k] for k, wanted in enumerate((1, 4, 9))]
    assert torch.equal(asked, torch.stack(each))
    with pytest.raises(ValueError, match="set wanted"):
        DigitClass().of_samples(x_KD, torch.tensor([1, -1, 9]))
