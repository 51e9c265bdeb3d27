"""Several frozen policies as one: who is asked, what each sees; the distance to what they would do, its gradient; what is refused."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal import recipes
from gimbal.advantages.shapings.scaled import Scaled
from gimbal.objectives import ClippedRatio
from gimbal.objectives.regularisers.reference_action import ReferenceAction
from gimbal.policies.control import MEAN, Steps
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.policies.teachers import Teachers
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer

SEEN = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
SEEN[:, 3] = torch.tensor([0.5, 1.0, 2.0]).repeat(10)
STILL = torch.zeros(30, 1), torch.zeros(30)


def saved(tmp_path):
    """Three policies on three numbers, far from 0, and their directories with the masses they know."""
    specs = [SquashedGaussian(observations=3, actions=1, bound=2.0), Gaussian(observations=3, actions=1)]
    found, places = [], {}
    for number, (spec, mass) in enumerate(zip([*specs, specs[0]], (0.5, 1.0, 2.0), strict=True)):
        policy = spec.load(number)
        with torch.no_grad():
            for weight in policy.parameters():
                weight.mul_(5)
        policy.save(tmp_path / str(number))
        found.append(policy.requires_grad_(False))
        places[str(tmp_path / str(number))] = mass
    return found, Teachers(observations=4, actions=1, teachers=places, tells=3)


def test_each_state_asks_the_teacher_of_its_variant_which_sees_what_it_was_trained_on(tmp_path):
    policies, spec = saved(tmp_path)
    teachers = spec.load()
    expected = torch.cat([policies[n % 3].draw(SEEN[n : n + 1, :3], *(x[:1] for x in STILL))[0] for n in range(30)])
    torch.testing.assert_close(teachers.mean_action(SEEN), expected)
    torch.testing.assert_close(teachers.draw(SEEN, *STILL)[0], expected)
    assert len(expected.unique()) > 20 and not any(weight.requires_grad for weight in teachers.parameters())
    nearly = SEEN.clone()
    nearly[:, 3] += 0.2
    assert torch.equal(teachers.draw(nearly, *STILL)[0], teachers.draw(SEEN, *STILL)[0])


def test_log_probabilities_are_each_teacher_s_own(tmp_path):
    policies, spec = saved(tmp_path)
    done = torch.rand(30, 1, generator=torch.Generator().manual_seed(2))
    found, entropy = spec.load().assess(SEEN, done, 0.7)
    for number, policy in enumerate(policies):
        own, its = policy.assess(SEEN[number::3, :3], done[number::3], 0.7)
        torch.testing.assert_close(found[number::3], own)
        torch.testing.assert_close(entropy[number::3], its, equal_nan=True)


def test_one_teacher_is_asked_everywhere(tmp_path):
    policies, spec = saved(tmp_path)
    alone = replace(spec, teachers=dict([*spec.teachers.items()][1:2])).load()
    torch.testing.assert_close(alone.mean_action(SEEN), policies[1].mean_action(SEEN[:, :3]))


def test_teachers_that_do_not_fit_are_refused(tmp_path):
    _, spec = saved(tmp_path)
    with pytest.raises(ValueError, match="has 3 observations and 1 actions, and the student 4 and 2"):
        replace(spec, actions=2).load()
    with pytest.raises(ValueError, match="a teacher sees the first observations of the student's"):
        replace(spec, observations=2, tells=1).load()
    narrow = Gaussian(observations=2, actions=1)
    narrow.load(0).save(tmp_path / "narrow")
    with pytest.raises(ValueError, match="narrow has 2 observations, and the student 3 before the one that tells"):
        replace(spec, teachers={str(tmp_path / "narrow"): 1.0}).load()
    with pytest.raises(ValueError, match="narrow has 2 observations, and the student 3"):
        replace(spec, teachers={str(tmp_path / "narrow"): 1.0}, tells=-1).load()
    assert replace(spec, teachers={str(tmp_path / "narrow"): 1.0}, tells=2).load()  # it sees all that come before
    with pytest.raises(ValueError, match=r"a name in reference\.teachers must be a directory"):
        replace(spec, teachers={"nowhere": 1.0}).load()
    student = Gaussian(observations=4, actions=1).load(0)
    assert spec.load().reads(student) == ""
    assert "4 observations" in spec.load().reads(Gaussian(observations=3, actions=1).load(0))


def batch(mean, reference):
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[1, 2] = False
    return TrainBatch(mask_NS=mask, facts={f"reference/{MEAN}": reference}).evaluated({MEAN: mean})


def test_the_distance_is_its_equation_and_pulls_to_the_reference():
    generator = torch.Generator().manual_seed(0)
    mean, reference = (torch.randn(2, 3, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    own = ReferenceAction(coef=0.3)

    def loss(mean):
        return own(torch.zeros(2, 3), batch(mean, reference)).loss_NS.sum()

    terms = own(torch.zeros(2, 3), batch(mean, reference))
    expected = ((mean - reference) ** 2).sum(-1)
    expected[1, 2] = 0
    torch.testing.assert_close(terms.loss_NS, 0.3 * expected)
    torch.testing.assert_close(terms.metrics["teacher/error"], expected)
    assert torch.autograd.gradcheck(loss, mean.requires_grad_())
    (gradient,) = torch.autograd.grad(loss(mean), mean)
    torch.testing.assert_close(gradient[0], 0.6 * (mean - reference)[0].detach())
    assert not gradient[1, 2].any()


def test_a_place_that_is_not_there_and_teachers_told_apart_by_nothing_are_refused():
    with pytest.raises(ValueError, match="tells=7, the place of a number among 4 observations: 0 to 3"):
        Teachers(observations=4, actions=1, tells=7)
    with pytest.raises(ValueError, match="two of them have one value"):
        Teachers(observations=4, actions=1, teachers={"a": 2.0, "b": 2.0})


def test_at_the_reference_and_without_a_coefficient_it_is_0():
    mean = torch.randn(2, 3, 2, requires_grad=True)
    for own, reference in ((ReferenceAction(), mean.detach()), (ReferenceAction(coef=0.0), torch.zeros(2, 3, 2))):
        loss = own(torch.zeros(2, 3), batch(mean, reference)).loss_NS.sum()
        assert float(loss.detach()) == 0 and not torch.autograd.grad(loss, mean)[0].any()


def test_of_unit_deviations_it_is_twice_the_kl():
    one, other = torch.randn(2, 3, 2), torch.randn(2, 3, 2)
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(one, 1.0), normal(other, 1.0)).sum(-1)
    found = ReferenceAction()(torch.zeros(2, 3), batch(one, other)).loss_NS
    torch.testing.assert_close(found[0], 2 * kl[0])


def test_a_policy_tells_the_mean_of_its_actions_with_gradient():
    policy = Gaussian(observations=4, actions=2).load(3)
    length = torch.tensor([3, 2])
    steps = Steps(
        observation_NSO=torch.randn(2, 3, 4),
        action_NSA=torch.randn(2, 3, 2),
        final_NO=torch.randn(2, 4),
        length_N=length,
        terminated_N=torch.zeros(2, dtype=torch.bool),
    )
    mean = policy.evaluate(steps, columns=(MEAN,)).columns[MEAN]
    torch.testing.assert_close(mean[0], policy.mean(steps.observation_NSO[0]))
    assert mean.requires_grad and not mean[1, 2].any()


def test_scaled_advantages_scale_the_surrogate():
    generator = torch.Generator().manual_seed(0)
    columns = {name: torch.randn(2, 3, generator=generator) for name in ("advantage_NS", "proximal_NS")}
    made = TrainBatch(mask_NS=torch.ones(2, 3, dtype=torch.bool), **columns)
    logprob = columns["proximal_NS"] + torch.randn(2, 3, generator=generator)
    whole = ClippedRatio()(logprob, made).loss_NS
    for factor in (0.0, 0.3, 1.0):
        scaled = replace(made, advantage_NS=Scaled(factor=factor)(made))
        torch.testing.assert_close(ClippedRatio()(logprob, scaled).loss_NS, factor * whole)
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"Scaled\.factor is"):
            Scaled(factor=wrong)
        with pytest.raises(ValueError, match=r"ReferenceAction\.coef is"):
            ReferenceAction(coef=wrong)


def test_while_the_gate_is_closed_the_student_follows_its_teachers_alone(tmp_path, single_thread):
    """Rewards may say anything: until the critic is ready the policy's weights do not depend on them."""
    _, spec = saved(tmp_path)
    found = []
    for scale in (50.0, 5.0):  # of the critic, and so of what would be advantages
        run = recipes.load("intermimic", {"held_out": None})
        run = replace(run, reference=spec, prompts_per_step=3, critic=replace(run.critic, scale=scale))
        trainer = Trainer(run)
        trainer.begin()
        metrics = trainer.advance()[0]
        assert metrics["control/shaping.1.factor"] == 0 and metrics["control/regularisers.1.coef"] == 1
        assert metrics["teacher/error"] > 0 and "value/explained" in metrics
        found.append([weight.clone() for weight in trainer.learner.policy.mean.parameters()])
        trainer.close()
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(*found, strict=True))
