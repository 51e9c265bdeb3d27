"""Discriminators: real samples and files of them, DMD2's GAN loss and AFD against central differences of their equations."""

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

from gimbal.cli import main
from gimbal.dataflow.real_samples import RealSamples, read
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates import adversarial_flow, distribution_matching, forward_process
from gimbal.learning.updates.adversarial_flow import AdversarialFlow, between
from gimbal.learning.updates.discriminator import DISCRIMINATOR, AdversarialLoss
from gimbal.learning.updates.distribution_matching import FAKE, REAL, DistributionMatching
from gimbal.policies.paths import NO_LABEL
from gimbal.rewards.digits import digits

SHAPE = (1, 2, 2)


@pytest.fixture
def real(tmp_path):
    """Twelve samples of 2x2 pixels, of the classes 0 to 2 in turn."""
    file = tmp_path / "real.npz"
    samples = np.random.default_rng(0).normal(size=(12, *SHAPE)).astype("float32")
    np.savez(file, samples=samples, labels=np.arange(12) % 3)
    return RealSamples(file=str(file))


def surveyed(learner, batch):
    return learner.update.survey(learner.models, learner.prepare(batch))[0]


def test_the_gan_loss_of_both_sides(real):
    """Of the discriminator by its own weights, and of the policy through the noised sample; scores by themselves are taken off."""
    policy, update = (
        policy_of(0, FLOW()),
        DistributionMatching(fake_updates=1, adversarial=AdversarialLoss(real=real, coef=0.7)),
    )
    both = moved(policy, 0.3)  # fake = real: no gradient but the discriminator's
    learner = learner_of(policy, update, **{FAKE: both, REAL: both, DISCRIMINATOR: moved(policy, 0.2, seed=6)})
    batch = surveyed(learner, batch_of(policy))
    facts, decisions, w_now = batch.facts, batch.decisions, values(policy)
    real_ND = facts[distribution_matching.REAL_SAMPLE.format(0)][:, 0]
    assert all(any(torch.equal(x, y) for y in read(real.file)[0]) for x in real_ND)

    def noisy(x, n, draw):
        t = float(facts[distribution_matching.PLACE.format(draw)][n])
        return (1 - t) * x + t * facts[distribution_matching.EPS.format(draw)][n].flatten().double(), t

    def sample(w, n):
        k = int(facts[distribution_matching.STEP][n])
        return clean(w, decisions.state_NXD[n, k].flatten().double(), float(decisions.level_NSL[n, k, 1]))

    def of_discriminator(w):
        total = 0.0
        for n in range(ROWS):
            own, theirs = sample(w_now, n), real_ND[n].flatten().double()
            total += softplus(-said(w, *noisy(theirs, n, 0)).mean()) + softplus(said(w, *noisy(own, n, 0)).mean())
        return total / ROWS

    def of_policy(w, w_d):
        return 0.7 * sum(softplus(-said(w_d, *noisy(sample(w, n), n, 1)).mean()) for n in range(ROWS)) / ROWS

    losses = learner.update.losses(learner.models, batch)
    assert next(losses).of == (FAKE,)
    loss = next(losses)
    assert loss.of == (DISCRIMINATOR,)
    loss.value.backward()
    w_d = values(learner.models[DISCRIMINATOR])
    close(gradient(learner.models[DISCRIMINATOR]), differences(of_discriminator, w_d))
    assert float(loss.value.detach()) == pytest.approx(float(of_discriminator(w_d)), rel=1e-4)
    assert all(weight.grad is None for weight in learner.policy.parameters())
    loss = next(losses)
    assert loss.of == ("policy",) and next(losses, None) is None
    loss.value.backward()
    close(gradient(learner.policy), differences(lambda w: of_policy(w, w_d), w_now))
    assert loss.metrics["discriminator/against"] == pytest.approx(float(of_policy(w_now, w_d)) / 0.7, rel=1e-4)


def test_without_a_coefficient_to_speak_of_it_is_distribution_matching_alone(real):
    def of(adversarial):
        policy = policy_of(0, FLOW())
        models = {FAKE: moved(policy, 0.2), REAL: moved(policy, 0.3, seed=6)}
        update = DistributionMatching(fake_updates=1, adversarial=adversarial)
        learner = learner_of(policy, update, **models)
        # Further draws of the batch move the noises of the last one: it is compared at those of the other.
        return learner, surveyed(learner, batch_of(policy))

    (plain, batch), (both, other) = of(None), of(AdversarialLoss(real=real, coef=1e-12))
    shared = {key: value for key, value in batch.facts.items() if key in other.facts}
    found = []
    for learner, rows in ((plain, batch), (both, other.with_columns(shared))):
        *_, loss = learner.update.losses(learner.models, rows)
        loss.value.backward()
        found.append(gradient(learner.policy))
    torch.testing.assert_close(*found)


def afd(policy, real, **fields):
    learner = learner_of(policy, AdversarialFlow(real=real, **fields), **{DISCRIMINATOR: moved(policy, 0.2, seed=6)})
    return learner, surveyed(learner, batch_of(policy))


@pytest.mark.parametrize("coef", [0.0, 0.3])
def test_afd_of_both_sides(real, coef):
    policy, b = policy_of(0, FLOW()), 0.2
    learner, batch = afd(policy, real, b=b, coef=coef, draws=2)
    with torch.no_grad():
        learner.policy.model.m.add_(0.1)  # away from the base
    facts, sample_ND, w_now, w_first = batch.facts, batch.decisions.sample_ND, values(learner.policy), values(policy)
    w_d, real_ND = values(learner.models[DISCRIMINATOR]), facts[adversarial_flow.REAL_SAMPLE][:, 0]

    def score(w, x_D):
        return said(w, x_D.flatten().double(), 0.0).mean()

    scores = [score(w_d, x_D) for x_D in sample_ND]
    assert max(scores) - min(scores) < 5, "none is cut"
    good = [(s - min(scores)) / (max(scores) - min(scores)) for s in scores]
    torch.testing.assert_close(facts[adversarial_flow.GOOD], torch.stack(good).float(), atol=1e-5, rtol=1e-4)

    def of_discriminator(w):
        return sum(softplus(score(w, x_D) - score(w, y_D)) for x_D, y_D in zip(sample_ND, real_ND, strict=True)) / ROWS

    def of_policy(w):
        total = 0.0
        for n in range(ROWS):
            for k in range(2):
                t, eps = float(facts[forward_process.PLACE][n, k]), facts[forward_process.EPS][n, k].flatten().double()
                x = sample_ND[n].flatten().double()
                state, wanted = (1 - t) * x + t * eps, eps - x
                held, now = said(w_now, state, t), said(w, state, t)
                up, down = ((held + side * b * (now - held) - wanted).square().mean() for side in (1, -1))
                pull = (now - said(w_first, state, t)).square().mean()
                total += good[n] * up + (1 - good[n]) * down + coef * good[n] * pull
        return total / (2 * ROWS)

    losses = learner.update.losses(learner.models, batch)
    loss = next(losses)
    assert loss.of == (DISCRIMINATOR,)
    loss.value.backward()
    own, theirs = gradient(learner.models[DISCRIMINATOR]), differences(of_discriminator, w_d)
    close(own[: D * D], theirs[: D * D])
    assert not own[D * D :].any(), "the end of the path is at time 0"
    loss = next(losses)
    assert loss.of == ("policy",) and next(losses, None) is None
    loss.value.backward()
    close(gradient(learner.policy), differences(of_policy, w_now))


def test_afd_is_matching_by_a_signed_weight(real):
    """b (2 w - 1) md |v - v*|^2, whose value is another and whose gradient is the same."""
    policy, b = policy_of(0, FLOW()), 0.1
    learner, batch = afd(policy, real, b=b)
    *_, loss = learner.update.losses(learner.models, batch)
    loss.value.backward()
    rows, own = forward_process.noised(learner.models, batch), copy.deepcopy(policy)
    signed_N = b * (2 * batch.facts[adversarial_flow.GOOD] - 1)
    (signed_N[:, None] * rows.missed(rows.said(own))).mean().backward()
    torch.testing.assert_close(gradient(learner.policy), gradient(own))


def test_where_the_discriminator_tells_nothing_afd_teaches_nothing(real):
    learner, batch = afd(policy_of(0, FLOW()), real)
    even = batch.with_columns({adversarial_flow.GOOD: between(torch.full((ROWS,), 3.0), batch.facts["weight"])})
    *_, loss = learner.update.losses(learner.models, even)
    loss.value.backward()
    assert float(gradient(learner.policy).abs().max()) < 1e-7


def test_scores_between_their_least_and_their_most():
    weight_N = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0])
    score_N = torch.tensor([-1.0, 0.0, 1.0, 0.0, 100.0])
    assert between(score_N, weight_N).tolist() == [0.0, 0.5, 1.0, 0.5, 1.0], "what does not count sets no bound"
    far_N = torch.tensor([-20.0, 0.0, 20.0, 0.0, 0.0])
    assert between(far_N, weight_N)[:4].tolist() == [0.0, 0.5, 1.0, 0.5]
    lone_N = torch.tensor([100.0, 0.0, 1.0, 2.0, 0.0])  # the mean is 25.75: the others are cut to one value
    assert between(lone_N, weight_N)[:4].tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("adversarial", [False, True], ids=["afd", "gan"])
def test_a_checkpoint_holds_the_discriminator_and_goes_on_to_the_same_bits(real, adversarial):
    rates = Optimization(minibatches=2)
    update = (
        DistributionMatching(fake_updates=2, adversarial=AdversarialLoss(real=real), optimization=rates)
        if adversarial
        else AdversarialFlow(real=real, optimization=rates)
    )
    policy = policy_of(0, FLOW())

    def stepped(learner, seeds):
        for seed in seeds:
            learner.step(learner.prepare(batch_of(policy, seed=seed)))
        return learner

    whole, half = stepped(learner_of(policy, update), range(4)), stepped(learner_of(policy, update), range(2))
    resumed = Learner(copy.deepcopy(half.policy), update, first=lambda: copy.deepcopy(policy))
    resumed.load_state(half.save_state())
    stepped(resumed, range(2, 4))
    for name in update.models():
        assert torch.equal(values(resumed.models[name]), values(whole.models[name])), name
    assert not torch.equal(values(whole.models[DISCRIMINATOR]), values(policy))


@pytest.mark.parametrize("adversarial", [False, True], ids=["afd", "gan"])
def test_micro_batches_change_no_weight(real, adversarial):
    policy = policy_of(0, FLOW())

    def after(tokens):
        rates = Optimization(microbatch_tokens=tokens, beta1=0.0)
        gan = DistributionMatching(adversarial=AdversarialLoss(real=real), optimization=rates)
        learner = learner_of(policy, gan if adversarial else AdversarialFlow(real=real, optimization=rates))
        learner.step(learner.prepare(batch_of(policy)))
        return values(learner.policy), values(learner.models[DISCRIMINATOR])

    for whole, split in zip(after(10_000), after(4), strict=True):
        torch.testing.assert_close(whole, split, atol=1e-5, rtol=1e-4)


def test_real_samples_are_of_the_class_that_was_asked_for(real):
    sample_KD, label_K = read(real.file)
    label_N = torch.tensor([2, 0, 1, NO_LABEL] * 50)
    drawn_ND = real.drawn(label_N, SHAPE, np.random.default_rng(0))
    row_N = torch.tensor([int((sample_KD == x).flatten(1).all(1).nonzero()) for x in drawn_ND])
    asked = label_N != NO_LABEL
    assert torch.equal(label_K[row_N[asked]], label_N[asked])
    assert set(row_N[~asked].tolist()) == set(range(12)) and len(set(row_N[label_N == 2].tolist())) == 4


def test_only_these_classes_are_shown(real):
    sample_KD, label_K = read(real.file)
    drawn_ND = replace(real, only=(0, 2)).drawn(torch.full((200,), NO_LABEL), SHAPE, np.random.default_rng(0))
    row_N = torch.tensor([int((sample_KD == x).flatten(1).all(1).nonzero()) for x in drawn_ND])
    assert set(label_K[row_N].tolist()) == {0, 2}
    with pytest.raises(ValueError, match=r"only names class 7, of which .*real\.npz has no sample"):
        replace(real, only=(0, 7)).kept()


def test_digits_are_shaped_as_the_policy_s_samples():
    data_KD, label_K = digits()
    drawn_ND = RealSamples().drawn(torch.tensor([7, 7]), (1, 8, 8), np.random.default_rng(0))
    assert drawn_ND.shape == (2, 1, 8, 8)
    assert all((data_KD[label_K == 7] == x.flatten()).all(1).any() for x in drawn_ND)


def test_files_that_are_no_samples_are_refused(tmp_path, real):
    with pytest.raises(ValueError, match=r"there is no file .* of real samples"):
        read(str(tmp_path / "none.npz"))
    fair = np.zeros((3, *SHAPE), "float32")
    bad = {
        r"must be \[K, C, H, W\]": {"samples": fair[0]},
        r"cannot be read as real samples .*samples": {"images": fair},
        "and labels": {"samples": fair, "labels": np.zeros(2, int)},
        "not finite": {"samples": fair + np.nan},
        r"whole numbers \(uint8\).*x / 127.5 - 1": {"samples": fair.astype("uint8")},
        r"samples from 0 to 255, as pixels in files are, .*x / 127.5 - 1": {
            "samples": fair + np.float32(127.5) * np.arange(3, dtype="float32")[:, None, None, None]
        },
        "cannot be read": {"samples": fair, "labels": np.array(["a", "b", "c"])},
    }
    for n, (reason, arrays) in enumerate(bad.items()):
        np.savez(tmp_path / f"{n}.npz", **arrays)
        with pytest.raises(ValueError, match=reason):
            read(str(tmp_path / f"{n}.npz"))
    np.savez(tmp_path / "whole.npz", samples=fair)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-60])
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("cut", "text"):
        with pytest.raises(ValueError, match="cannot be read"):
            read(str(tmp_path / f"{name}.npz"))
    with pytest.raises(ValueError, match=r"only is \(4, 4\); name each class once"):
        RealSamples(only=(4, 4))
    one = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"have the shape .* and the policy's"):
        real.drawn(torch.tensor([0]), (1, 4, 4), one)
    with pytest.raises(ValueError, match="asks for class 5"):
        real.drawn(torch.tensor([5]), SHAPE, one)


def test_settings_out_of_range():
    for fields in ({"b": 0.0}, {"b": 1.5}, {"coef": -1.0}, {"coef": math.nan}, {"draws": 0}):
        with pytest.raises(ValueError, match=rf"AdversarialFlow.*{next(iter(fields))} is|AdversarialFlow\.b is"):
            AdversarialFlow(**fields)
    for coef in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="leave the loss out"):
            AdversarialLoss(coef=coef)
    assert replace(AdversarialLoss(), coef=1.0).coef == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["dmd2_gan", "afd"])
def test_a_run_goes_on_after_a_checkpoint_to_the_same_bits(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ["prompts_per_step=1", "num_generations=4", "held_out=None", "policy.batch=4", "checkpoint_every=1"]
    few += ["update.fake_updates=1"] if recipe == "dmd2_gan" else []
    assert main(["train", recipe, "steps=2", *few, "--name", "whole"]) == 0
    assert main(["train", recipe, "steps=1", *few, "--name", "half"]) == 0
    assert main(["train", "--resume", "runs/half", "steps=2"]) == 0
    whole, half = (tmp_path / "runs" / name / "model/transformer" for name in ("whole", "half"))
    (file,) = whole.glob("*.safetensors")
    assert file.read_bytes() == (half / file.name).read_bytes()
    at = "update.adversarial.real" if recipe == "dmd2_gan" else "update.real"
    for typed, said_ in (
        (f"{at}.file=none.npz", "there is no file none.npz"),
        (f"{at}.only=[11]", "only names class 11"),
    ):
        capsys.readouterr()
        assert main(["train", recipe, *few, typed, "--name", "wrong"]) == 2
        told = capsys.readouterr().err
        assert said_ in told and "Traceback" not in told


def test_asd_shows_the_next_step_of_a_path_as_real():
    """Both sides against central differences; rows at the last step of their path are in neither, and the policy is taught by the
    earlier step alone."""
    policy = policy_of(0, FLOW())
    update = DistributionMatching(fake_updates=1, adversarial=AdversarialLoss(real=None, coef=0.7))
    both = moved(policy, 0.3)
    learner = learner_of(policy, update, **{FAKE: both, REAL: both, DISCRIMINATOR: moved(policy, 0.2, seed=6)})
    batch = surveyed(learner, batch_of(policy))
    facts, decisions, w_now = batch.facts, batch.decisions, values(policy)
    assert distribution_matching.REAL_SAMPLE.format(0) not in facts
    step_N = facts[distribution_matching.STEP].tolist()
    earlier = [n for n in range(ROWS) if step_N[n] < 2]
    assert 0 < len(earlier) < ROWS

    def noisy(x, n, draw):
        t = float(facts[distribution_matching.PLACE.format(draw)][n])
        return (1 - t) * x + t * facts[distribution_matching.EPS.format(draw)][n].flatten().double(), t

    def sample(w, n, later=0):
        k = step_N[n] + later
        return clean(w, decisions.state_NXD[n, k].flatten().double(), float(decisions.level_NSL[n, k, 1]))

    def of_discriminator(w):
        shown = [(sample(w_now, n, 1), sample(w_now, n), n) for n in earlier]
        return (
            sum(
                softplus(-said(w, *noisy(y, n, 0)).mean()) + softplus(said(w, *noisy(x, n, 0)).mean())
                for y, x, n in shown
            )
            / ROWS
        )

    def of_policy(w, w_d):
        return 0.7 * sum(softplus(-said(w_d, *noisy(sample(w, n), n, 1)).mean()) for n in earlier) / ROWS

    _, loss, last = (one for one in learner.update.losses(learner.models, batch))
    w_d = values(learner.models[DISCRIMINATOR])
    loss.value.backward()
    close(gradient(learner.models[DISCRIMINATOR]), differences(of_discriminator, w_d))
    assert all(weight.grad is None for weight in learner.policy.parameters()), "the next step is a constant"
    learner.models[DISCRIMINATOR].zero_grad()
    last.value.backward()
    close(gradient(learner.policy), differences(lambda w: of_policy(w, w_d), w_now))
