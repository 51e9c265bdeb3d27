"""ARC-Forcing: both losses against central differences, the conditions that D is told, and what D learns to read."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_denoising_gradients import D, close, differences, gradient, moved, policy_of, said, values
from torch.nn.functional import softplus

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from test_distribution_matching import FLOW, ROWS, batch_of, clean, learner_of

from gimbal.dataflow.packing import pack
from gimbal.dataflow.real_samples import RealSamples
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.adversarial_forcing import CONTRASTED, GIVEN, LABEL, AdversarialForcing
from gimbal.learning.updates.discriminator import DISCRIMINATOR
from gimbal.learning.updates.distribution_matching import EPS, PLACE, REAL_SAMPLE, STEP
from gimbal.learning.updates.forward_process import classes
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import NO_LABEL, PathSampling
from gimbal.records import Group, Task
from gimbal.rewards.digits import digits
from gimbal.workflows.runner import Driven
from gimbal.workflows.streamed import Streamed

SHAPE, BLOCKS = (1, 2, 2), 3


@pytest.fixture
def real(tmp_path):
    file = tmp_path / "real.npz"
    samples = np.random.default_rng(0).normal(size=(12, *SHAPE)).astype("float32")
    np.savez(file, samples=samples, labels=np.arange(12) % 3)
    return RealSamples(file=str(file))


def of_classes(policy, labels, **options):
    batch = batch_of(policy, **options)
    decisions = replace(batch.decisions, label_N=torch.tensor(labels))
    return replace(batch, decisions=decisions, episode_N=torch.arange(len(labels)))


@pytest.fixture(scope="module")
def streams():
    """A policy, and a batch of a stream of three blocks of each of the classes 5 and 7."""
    policy = Denoiser(model="gimbal-digits-stream", batch=8).load()
    live = Driven(engine=Denoising(slots=4), workflow=Streamed(blocks=BLOCKS)).start(policy)
    live.load(0, policy.weights())
    tasks = [Task(id=f"t{label}", columns={"label": label}) for label in (5, 7)]
    sampling = PathSampling(max_length=2, sampler="ode", spacing="trailing")
    for index, task in enumerate(tasks):
        live.submit(Request(group=index, task=task, sample=0, sampling=sampling, seed=3))
    found = {key[0]: one.outcome.scored(0.0, {}) for key, one in drained(live).items()}
    return policy, pack([Group(index=i, task=task, episodes=(found[i],)) for i, task in enumerate(tasks)])


def surveyed(learner, batch):
    return learner.update.survey(learner.models, learner.prepare(batch))[0]


def test_both_sides_of_a_relativistic_gan(real):
    """Of the discriminator by its own weights, and then, moved, of the policy through the noised sample."""
    policy = policy_of(0, FLOW())
    learner = learner_of(policy, AdversarialForcing(real=real), **{DISCRIMINATOR: moved(policy, 0.2, seed=6)})
    batch = surveyed(learner, of_classes(policy, [0, 1, 2, 0, 1, 2]))
    facts, decisions, w_now = batch.facts, batch.decisions, values(policy)
    real_ND = facts[REAL_SAMPLE.format(0)][:, 0]

    def score(w, x, n):
        t = float(facts[PLACE.format(0)][n])
        return said(w, (1 - t) * x + t * facts[EPS.format(0)][n].flatten().double(), t).mean()

    def sample(w, n):
        k = int(facts[STEP][n])
        return clean(w, decisions.state_NXD[n, k].flatten().double(), float(decisions.level_NSL[n, k, 1]))

    def against(w_d, w, sign):
        gaps = [score(w_d, real_ND[n].flatten().double(), n) - score(w_d, sample(w, n), n) for n in range(ROWS)]
        return sum(softplus(sign * gap) for gap in gaps) / ROWS

    losses = learner.update.losses(learner.models, batch)
    loss = next(losses)
    assert loss.of == (DISCRIMINATOR,)
    loss.value.backward()
    w_d = values(learner.models[DISCRIMINATOR])
    found, wanted = gradient(learner.models[DISCRIMINATOR]), differences(lambda w: against(w, w_now, -1), w_d)
    close(found[:-D], wanted[:-D])
    assert found[-D:].abs().max() < 1e-6, "what is added to both scores cancels"
    # This network is told no condition, so that it cannot tell a shuffled one.
    assert float(loss.value.detach()) == pytest.approx(float(against(w_d, w_now, -1)) + math.log(2), rel=1e-4)
    assert loss.metrics["discriminator/read"] == pytest.approx(0, abs=1e-6)
    assert all(weight.grad is None for weight in learner.policy.parameters())
    with torch.no_grad():
        learner.models[DISCRIMINATOR].model.c.add_(torch.tensor([0.4, -0.2, 0.1, 0.3]))
        learner.models[DISCRIMINATOR].model.m.mul_(1.5)
    loss = next(losses)
    assert loss.of == ("policy",) and next(losses, None) is None
    loss.value.backward()
    w_d = values(learner.models[DISCRIMINATOR])
    close(gradient(learner.policy), differences(lambda w: against(w_d, w, 1), w_now))
    assert float(loss.value.detach()) == pytest.approx(float(against(w_d, w_now, 1)), rel=1e-4)


def test_a_constant_discriminator_moves_no_policy(real):
    policy = policy_of(0, FLOW())
    flat = copy.deepcopy(policy)
    with torch.no_grad():
        for weight in flat.parameters():
            weight.zero_()
    learner = learner_of(policy, AdversarialForcing(real=real), **{DISCRIMINATOR: flat})
    *_, loss = learner.update.losses(learner.models, surveyed(learner, of_classes(policy, [0, 1, 2, 0, 1, 2])))
    loss.value.backward()
    assert not gradient(learner.policy).any()


def test_real_samples_and_other_conditions_go_by_the_class_of_the_episode(streams):
    policy, batch = streams
    learner = learner_of(policy, AdversarialForcing())
    batch = surveyed(learner, batch)
    facts, decisions = batch.facts, batch.decisions
    asked_N = classes(batch, learner.update)
    assert sorted(asked_N.tolist()) == [5] * BLOCKS + [7] * BLOCKS
    assert sorted(decisions.label_N.tolist()) == [NO_LABEL] * 4 + [5, 7]
    data_KD, label_K = digits()
    for n, real_D in enumerate(facts[REAL_SAMPLE.format(0)].flatten(1)):
        (row,) = {int(label_K[k]) for k in (data_KD == real_D).all(1).nonzero()[:, 0]}
        assert row == int(asked_N[n])
    assert bool(facts[CONTRASTED].all())
    for n in range(len(asked_N)):
        said_by = [
            m
            for m in range(len(asked_N))
            if torch.equal(decisions.given_ND[m], facts[GIVEN][n, 0]) and decisions.label_N[m] == facts[LABEL][n]
        ]
        assert said_by and all(asked_N[m] != asked_N[n] for m in said_by)


def test_d_is_told_the_condition_and_in_the_contrast_another(streams):
    policy, batch = streams
    learner = learner_of(policy, AdversarialForcing(contrast=0.5), **{DISCRIMINATOR: moved(policy, 0.02, seed=2)})
    batch = surveyed(learner, batch)
    facts, decisions, n = batch.facts, batch.decisions, len(batch.mask_NS)
    at = torch.arange(n), facts[STEP]

    def score(x_ND, label_N, given_ND):
        t_N = facts[PLACE.format(0)].reshape(-1, 1, 1, 1)
        x_ND = (1 - t_N) * x_ND + t_N * facts[EPS.format(0)][:, 0]
        return learner.models[DISCRIMINATOR].found(x_ND, 1000 * t_N.flatten(), label_N, given_ND).flatten(1).mean(1)

    with torch.no_grad():
        found_ND = policy.found(decisions.state_NXD[at], decisions.time_NS[at], decisions.label_N, decisions.given_ND)
        own_ND = decisions.state_NXD[at] - decisions.level_NSL[at][:, 1].reshape(-1, 1, 1, 1) * found_ND
        real_ND, told = facts[REAL_SAMPLE.format(0)][:, 0], (decisions.label_N, decisions.given_ND)
        real_N, own_N = score(real_ND, *told), score(own_ND, *told)
        other_N = score(real_ND, facts[LABEL], facts[GIVEN][:, 0])
        wanted = (softplus(own_N - real_N) + 0.5 * softplus(other_N - real_N)).mean()
    loss = next(learner.update.losses(learner.models, batch))
    assert float(loss.value.detach()) == pytest.approx(float(wanted), rel=1e-4)
    assert loss.metrics["discriminator/read"] == pytest.approx(float((real_N - other_N).mean()), abs=1e-5)
    assert (real_N - other_N).abs().min() > 1e-5


def test_a_batch_of_one_class_has_nothing_to_contrast(real):
    policy = policy_of(0, FLOW())
    models = {DISCRIMINATOR: moved(policy, 0.2, seed=6)}

    def first(contrast):
        learner = learner_of(policy, AdversarialForcing(real=real, contrast=contrast), **models)
        batch = surveyed(learner, of_classes(policy, [1] * ROWS))
        assert not batch.facts[CONTRASTED].any()
        return float(next(learner.update.losses(learner.models, batch)).value.detach())

    assert first(1.0) == first(0.0)


def test_micro_batches_do_not_change_the_step_and_a_checkpoint_holds_the_discriminator(streams):
    policy, batch = streams

    def after(tokens):
        rates = Optimization(microbatch_tokens=tokens, critic_learning_rate=1e-3, beta1=0.0)
        learner = learner_of(policy, AdversarialForcing(optimization=rates))
        learner.step(learner.prepare(batch))
        assert set(learner.save_state()["models"]) == {DISCRIMINATOR}
        return [
            torch.cat([x.flatten() for x in learner.models[name].parameters()]) for name in ("policy", DISCRIMINATOR)
        ]

    for whole, split, begun in zip(after(10_000), after(2), [policy, policy], strict=True):
        # What is added to both scores has no gradient but rounding, of which AdamW makes a step.
        assert float(((whole - split).abs() < 1e-5).float().mean()) > 0.999
        assert not torch.equal(whole, torch.cat([x.detach().flatten() for x in begun.parameters()]))


def test_settings_that_cannot_be():
    for contrast in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"AdversarialForcing\.contrast is"):
            AdversarialForcing(contrast=contrast)
