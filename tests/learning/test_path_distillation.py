"""On-policy distillation of denoising policies: gradients against central differences, and against the score function."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from test_denoising_gradients import D, close, differences, flow_mean, gradient, moved, policy_of, said, values

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from test_distribution_matching import FLOW, batch_of

from gimbal import config, recipes
from gimbal.learning.learner import Learner
from gimbal.learning.updates.path_distillation import PathDistillation, Teacher
from gimbal.policies.denoiser import Denoiser
from gimbal.runtime import policies

ROWS, NOISE = 6, 0.7


def labelled(batch, labels):
    return replace(batch, decisions=replace(batch.decisions, label_N=torch.tensor(labels)))


def learner_of(policy, *teachers, labels=((),)):
    """The teachers as they are: their specs, which the command line gives, would be loaded from files."""
    update = PathDistillation(teachers=tuple(Teacher(policy=Denoiser(), labels=own) for own in labels))
    given = {f"teacher_{place}": copy.deepcopy(teacher) for place, teacher in enumerate(teachers)}
    return Learner(copy.deepcopy(policy), update, **given)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("sampler", ["flow_sde", "ode"])
def test_the_gradient_with_two_teachers_of_which_each_has_its_classes(sampler, reduce):
    policy = policy_of(0, FLOW())
    one, other = moved(policy, 0.3), moved(policy, 0.4, seed=6)
    batch = labelled(batch_of(policy, sampler=sampler, noise=NOISE, reduce=reduce), [0, 0, 0, 1, 1, 2])
    now = moved(policy, 0.1, seed=7)
    learner = learner_of(now, one, other, labels=((0, 1), (1, 2)))
    batch = learner.prepare(batch)
    metrics = learner.forward_backward(batch)
    decisions, steps = batch.decisions, 2 if sampler == "flow_sde" else 3
    taught = {0: (one,), 1: (one, other), 2: (other,)}

    def loss(w):
        total = 0.0
        for n in range(ROWS):
            for k in range(steps):
                x, level = decisions.state_NXD[n, k].flatten().double(), decisions.level_NSL[n, k].double().tolist()
                time = float(decisions.time_NS[n, k]) / 1000
                noise = NOISE if sampler == "flow_sde" else 0.0
                mean, std = flow_mean(w, x, level, noise, time)
                for teacher in taught[int(decisions.label_N[n])]:
                    there, _ = flow_mean(values(teacher), x, level, noise, time)
                    total += ((mean - there) ** 2).sum() / (2 * (std**2 if noise else 1))
        return total / (ROWS * steps) * (1.0 if reduce == "sum" else 1 / D)

    close(gradient(learner.policy), differences(loss, values(now)))
    assert metrics["loss"] == pytest.approx(float(loss(values(now))), rel=1e-4)
    assert metrics["loss"] == pytest.approx(metrics["distil/teacher_0"] + metrics["distil/teacher_1"], rel=1e-5)


def test_policy_equal_to_teacher_has_no_loss_and_no_gradient():
    policy = policy_of(0, FLOW())
    learner = learner_of(policy, policy)
    assert learner.forward_backward(learner.prepare(batch_of(policy)))["loss"] == 0
    assert gradient(learner.policy).abs().max() == 0


def test_its_gradient_is_the_mean_of_that_by_the_score_function():
    """Of one step of one path: E[(log p - log p_e) grad log p] over the next state, by many draws."""
    policy, teacher = policy_of(0, FLOW()), moved(policy_of(0, FLOW()), 0.1)
    batch = batch_of(policy, rows=1, steps=2, sampler="flow_sde", noise=NOISE)
    learner = learner_of(policy, teacher)
    learner.forward_backward(learner.prepare(batch))
    x, time = batch.decisions.state_NXD[0, 0].flatten().double(), float(batch.decisions.time_NS[0, 0]) / 1000
    level, w = batch.decisions.level_NSL[0, 0].double().tolist(), values(policy).requires_grad_()
    mean, std = flow_mean(w, x, level, NOISE, time)
    there, _ = flow_mean(values(teacher), x, level, NOISE, time)
    g = torch.Generator().manual_seed(0)
    after_MD = mean.detach() + std * torch.randn(100_000, D, generator=g, dtype=torch.float64)
    gap_M = ((after_MD - there) ** 2 - (after_MD - mean.detach()) ** 2).sum(-1) / (2 * std**2)
    logprob_M = -((after_MD - mean) ** 2).sum(-1) / (2 * std**2) - D * math.log(std)
    (found,) = torch.autograd.grad(((gap_M - gap_M.mean()) * logprob_M).mean(), w)
    torch.testing.assert_close(found, gradient(learner.policy), rtol=0.05, atol=0.03 * float(found.abs().max()))


def test_one_ode_step_of_a_flow_is_the_regression_of_velocities():
    policy, teacher = policy_of(0, FLOW()), moved(policy_of(0, FLOW()), 0.3)
    batch = batch_of(policy, steps=1)
    learner = learner_of(policy, teacher)
    learner.forward_backward(learner.prepare(batch))
    start_ND = batch.decisions.state_NXD[:, 0].flatten(1).double()

    def loss(w):
        return sum(((said(w, x, 1.0) - said(values(teacher), x, 1.0)) ** 2).sum() / 2 for x in start_ND) / ROWS

    close(gradient(learner.policy), differences(loss, values(policy)))


def test_two_teachers_of_a_task_pull_to_the_mean_of_theirs():
    """The mean of two networks linear in their weights is the network of the mean weights."""
    policy, one, other = policy_of(0, FLOW()), policy_of(1, FLOW()), policy_of(2, FLOW())
    middle = copy.deepcopy(one)
    with torch.no_grad():
        for weight, more in zip(middle.parameters(), other.parameters(), strict=True):
            weight.lerp_(more, 0.5)
    batch, found = batch_of(policy), []
    for teachers in ((one, other), (middle,)):
        learner = learner_of(policy, *teachers, labels=((),) * len(teachers))
        learner.forward_backward(learner.prepare(batch))
        found.append(gradient(learner.policy))
    torch.testing.assert_close(found[0], 2 * found[1], rtol=1e-4, atol=1e-6)


def test_teachers_as_they_are_typed():
    typed = "[Teacher(policy=Denoiser(guidance=2), labels=[0, 1]), Teacher(policy=Denoiser(), labels=[2])]"
    update = recipes.load(
        "diffusion_opd", {"update.teachers": config.Text(typed), "tasks.labels": config.Text("[0,1,2]")}
    ).update
    assert update.teachers == (
        Teacher(policy=Denoiser(guidance=2.0), labels=(0, 1)),
        Teacher(policy=Denoiser(), labels=(2,)),
    )
    asked = {name: config.Text("[4]") for name in ("tasks.labels", "held_out.tasks.labels")}
    taught = recipes.load("dmd2", asked | {"update.teacher": config.Text("Denoiser(guidance=3)")})
    assert taught.update.teacher == Denoiser(guidance=3.0)


@pytest.mark.parametrize(
    ("asked", "labels", "said"),
    [
        (None, "[2]", r"tasks asks for class 3, which has no teacher .*: set tasks.labels=\[0,1,2\], add 3"),
        ("[]", "[2]", r"tasks asks for no class, .*: set tasks.labels=\[0,1,2\]"),
        ("[0,1,2,12]", "[2, 12]", r"^tasks.labels asks for class 12, and gimbal-digits has classes 0 to 9"),
        ("[0,1,2]", "[2, 12]", r"update.teachers.1.labels names class 12, and gimbal-digits has classes 0 to 9"),
        ("[0,1,2]", "[2]", ""),
        ("[]", "[]", ""),
    ],
)
def test_classes_without_a_teacher_or_that_the_model_has_not_are_refused_before_the_run(asked, labels, said):
    typed = f"[Teacher(policy=Denoiser(), labels=[0, 1]), Teacher(policy=Denoiser(batch=32), labels={labels})]"
    keys = {"update.teachers": config.Text(typed)} | ({} if asked is None else {"tasks.labels": config.Text(asked)})
    if not said:
        recipes.load("diffusion_opd", keys)
        return
    with pytest.raises(ValueError, match=said):
        recipes.load("diffusion_opd", keys)


def test_a_teacher_that_is_not_there_is_named_as_it_was_typed():
    typed = config.Text('[Teacher(policy=Denoiser(model="nope"))]')
    with pytest.raises(ValueError, match=r"^update.teachers.0.policy.model: nope has no "):
        policies.check_files(recipes.load("diffusion_opd", {"update.teachers": typed}))
    with pytest.raises(ValueError, match=r"^update.teacher.model: nope has no "):
        policies.check_files(recipes.load("dmd2", {"update.teacher": config.Text('Denoiser(model="nope")')}))


def test_what_cannot_be_compared_is_refused_by_name():
    policy = policy_of(0, FLOW())
    with pytest.raises(ValueError, match="a path of class 3 has no teacher: add 3 to the labels"):
        learner_of(policy, policy, labels=((0,),)).prepare(labelled(batch_of(policy), [0, 0, 0, 0, 0, 3]))
    with pytest.raises(ValueError, match=r"teachers is empty: name one, teachers=\[Teacher"):
        PathDistillation(teachers=())
    with pytest.raises(ValueError, match="has the scheduler DDIMScheduler"):
        learner_of(policy, policy_of(0, diffusers.DDIMScheduler())).prepare(batch_of(policy))
