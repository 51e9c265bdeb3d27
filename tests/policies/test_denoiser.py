"""Denoising policies: steps are diffusers' own where nothing is drawn, and Gaussians that are known in full where something is."""

import json
import math
from dataclasses import replace

import made
import pytest
import torch

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal import recipes
from gimbal.composition import Composition
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.objectives import ClippedRatio, ClippedStep
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import Process
from gimbal.policies.lora import LoRA
from gimbal.policies.paths import Paths, PathSampling
from gimbal.policies.samplers import step
from gimbal.records import Task, TrainBatch

TIGHT = {"atol": 1e-6, "rtol": 0.0}
STEPS = 10


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def taken(process, place, x_KD, found_KD, sampler, amplitude):
    """(mean, std) of ours for step ``place``."""
    level_KL = process.schedule(STEPS).level_SL[place].expand(len(x_KD), 4)
    clean_KD, eps_KD = process.split(x_KD, found_KD, level_KL)
    return step(sampler, x_KD, clean_KD, eps_KD, level_KL, torch.full((len(x_KD),), float(amplitude)))


def test_trailing_steps_are_shifted_as_the_scheduler_shifts():
    process = Process(diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0))
    noise_S = process.schedule(4, trailing=True).level_SL[:, 1]
    torch.testing.assert_close(noise_S, torch.tensor([3 * t / (1 + 2 * t) for t in (1, 0.75, 0.5, 0.25)]), **TIGHT)


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_without_noise_a_step_of_a_flow_is_that_of_diffusers(shift):
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=shift)
    process, x, v = Process(scheduler), numbers(4, 1, 8, 8), numbers(4, 1, 8, 8, seed=1)
    for place in range(STEPS):
        for sampler in ("flow_sde", "dance_sde", "cps"):
            mean, std = taken(process, place, x, v, sampler, 0)
            scheduler.set_timesteps(STEPS)
            theirs = scheduler.step(v, scheduler.timesteps[place], x).prev_sample
            torch.testing.assert_close(mean, theirs, **TIGHT)
            assert float(std.abs().max()) == 0


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("spacing", ["leading", "trailing"])
def test_a_step_of_ddim_is_that_of_diffusers_without_noise_and_with(predicts, clip, spacing):
    scheduler = diffusers.DDIMScheduler(prediction_type=predicts, clip_sample=clip, timestep_spacing=spacing)
    process, x, found = Process(scheduler), numbers(4, 1, 8, 8), numbers(4, 1, 8, 8, seed=1)
    z = numbers(4, 1, 8, 8, seed=2)
    for place in range(STEPS):
        for eta in (0.0, 0.6):
            mean, std = taken(process, place, x, found, "ddim", eta)
            scheduler.set_timesteps(STEPS)
            time = int(scheduler.timesteps[place])
            theirs = scheduler.step(found, time, x, eta=eta, variance_noise=z).prev_sample
            # Where hardly any signal is left, both divide by its root: values of a hundred, of which 1e-6 is the last bit.
            ours = mean + std.reshape(-1, 1, 1, 1) * z
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=2e-6)


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("clip", [False, True])
def test_a_step_of_ddpm_is_that_of_diffusers_with_the_same_noise(predicts, clip):
    """DDPM's step is DDIM's at eta 1; its last step draws nothing."""
    scheduler = diffusers.DDPMScheduler(prediction_type=predicts, clip_sample=clip)
    process, x, found = Process(scheduler), numbers(4, 1, 8, 8), numbers(4, 1, 8, 8, seed=1)
    for place in range(STEPS):
        mean, std = taken(process, place, x, found, "ddim", 1)
        scheduler.set_timesteps(STEPS)
        generator = torch.Generator().manual_seed(5)
        theirs = scheduler.step(found, int(scheduler.timesteps[place]), x, generator=generator).prev_sample
        z = torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
        torch.testing.assert_close(mean + std.reshape(-1, 1, 1, 1) * z, theirs, atol=1e-6, rtol=2e-6)


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("clip", [False, True])
def test_without_noise_a_step_by_ddpms_scheduler_is_the_ode_of_ddims(predicts, clip):
    """DDPM's own step always draws; without noise its levels and clipping lead where DDIM's step does, told to clip as DDPM does."""
    fields = {"prediction_type": predicts, "clip_sample": clip}
    process, x, found = Process(diffusers.DDPMScheduler(**fields)), numbers(4, 1, 8, 8), numbers(4, 1, 8, 8, seed=1)
    scheduler = diffusers.DDIMScheduler(**fields)
    scheduler.set_timesteps(STEPS)
    for place in range(STEPS):
        mean, std = taken(process, place, x, found, "ddim", 0)
        time = int(scheduler.timesteps[place])
        theirs = scheduler.step(found, time, x, eta=0.0, use_clipped_model_output=clip).prev_sample
        torch.testing.assert_close(mean, theirs, atol=1e-6, rtol=2e-6)
        assert float(std.abs().max()) == 0


def gaussian_velocity(x, t, m0=1.5, s0=0.5):
    """Of data from N(m0, s0^2), in closed form."""
    variance, z = (1 - t) ** 2 * s0**2 + t**2, x - (1 - t) * m0
    return t * z / variance - m0 - (1 - t) * s0**2 * z / variance


@pytest.mark.parametrize("sampler, amplitude", [("flow_sde", 0.7), ("dance_sde", 0.3), ("flow_sde", 0.0)])
def test_sde_and_ode_have_the_marginals_of_a_gaussian(sampler, amplitude):
    """200 steps, 20,000 samples, data of mean 1.5 and deviation 0.5, compared half-way too. CPS with a large eta shrinks."""

    def spread(sampler, amplitude, steps=200):
        g, halfway = torch.Generator().manual_seed(0), None
        x = torch.randn(20_000, 1, generator=g)
        level_X = torch.linspace(1, 0, steps + 1)
        for k in range(steps - 1):
            t, s = level_X[k].expand(len(x)), level_X[k + 1].expand(len(x))
            v = gaussian_velocity(x, t[:, None])
            levels = torch.stack([1 - t, t, 1 - s, s], -1)
            amplitudes = torch.full((len(x),), amplitude)
            mean, std = step(sampler, x, x - t[:, None] * v, x + (1 - t[:, None]) * v, levels, amplitudes)
            x = mean + std[:, None] * torch.randn(x.shape, generator=g)
            halfway = x.clone() if k + 1 == steps // 2 else halfway
        return [(float(y.mean()), float(y.std())) for y in (halfway, x)]

    (middle, wide), (mean, std) = spread(sampler, amplitude)
    assert abs(middle - 0.75) < 0.02 and abs(wide - math.sqrt(0.25 * 0.25 + 0.25)) < 0.015
    assert abs(mean - 1.5) < 0.02 and abs(std - 0.5) < 0.015
    assert spread("cps", 0.7)[1][1] < 0.45


@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
def test_ddim_has_the_marginals_of_a_gaussian_at_any_eta(eta):
    """200 steps of a cosine schedule, 20,000 samples, data of mean 1.5 and deviation 0.5, compared half-way too."""
    m0, s0, g = 1.5, 0.5, torch.Generator().manual_seed(0)
    angle_X = torch.linspace(math.pi / 2 - 0.01, 0, 201)
    x = m0 * math.cos(angle_X[0]) + torch.randn(20_000, 1, generator=g)
    for k in range(200):
        a, s, a2, s2 = (float(f(angle_X[at])) for at in (k, k + 1) for f in (torch.cos, torch.sin))
        z, variance = x - a * m0, a**2 * s0**2 + s**2
        clean, eps = m0 + a * s0**2 * z / variance, s * z / variance  # what a perfect network says
        levels = torch.tensor([a, s, a2, s2]).expand(len(x), 4)
        mean, std = step("ddim", x, clean, eps, levels, torch.full((len(x),), eta))
        assert bool((std > 0).all()) == (eta > 0 and k < 199), "it ends without noise"
        x = mean + std[:, None] * torch.randn(x.shape, generator=g)
        if k == 99:
            assert abs(float(x.mean()) - a2 * m0) < 0.02
            assert abs(float(x.std()) - math.sqrt(a2**2 * s0**2 + s2**2)) < 0.015
    assert abs(float(x.mean()) - m0) < 0.02 and abs(float(x.std()) - s0) < 0.015


def test_the_closed_form_kl_is_that_of_monte_carlo_and_of_the_velocities():
    d = 4
    x, v, other = numbers(1, d), numbers(1, d, seed=1), numbers(1, d, seed=1) + 0.3 * numbers(1, d, seed=2)
    t, s, a = 0.6, 0.5, 0.7
    levels = torch.tensor([[1 - t, t, 1 - s, s]])
    mean, std = step("flow_sde", x, x - t * v, x + (1 - t) * v, levels, torch.tensor([a]))
    mean_ref, _ = step("flow_sde", x, x - t * other, x + (1 - t) * other, levels, torch.tensor([a]))
    kl, own, held = made.one_step(mean, mean_ref, std, seed=0)
    gap = own - held
    assert abs(kl - float(gap.mean())) < 4 * float(gap.std()) / math.sqrt(len(gap)) and kl > 0.01
    g2 = a * math.sqrt(t / (1 - t))
    by_velocity = (t - s) / 2 * (g2 * (1 - t) / (2 * t) + 1 / g2) ** 2 * float((v - other).square().sum())
    assert abs(kl - by_velocity) < 1e-6 * kl + 1e-7


def rollouts(policy, count=5, precision="float32", label=None, **sampling):
    engine = Denoising(slots=4, precision=precision).start(policy)
    engine.load(0, policy.weights())
    task = Task(id="t", columns={} if label is None else {"label": label})
    for sample in range(count):
        engine.submit(
            Request(group=0, task=task, sample=sample, sampling=PathSampling(max_length=4, **sampling), seed=0)
        )
    return [finished.rollout for _, finished in sorted(drained(engine).items())]


def test_means_and_sums_differ_by_the_dimensions_and_so_do_the_clip_ranges():
    policy = Denoiser(batch=8).load(0)
    both = [Paths.stack([r.decisions for r in rollouts(policy, reduce=reduce)]) for reduce in ("sum", "mean")]
    found = [policy.evaluate(each, columns=("scale_NS",)) for each in both]
    torch.testing.assert_close(found[0].logprob_NS / 64, found[1].logprob_NS)
    assert found[1].columns["scale_NS"][0, 0] == 1 / 64
    mask_NS = both[0].amplitude_NS > 0
    apart_NS = 0.3 * numbers(*mask_NS.shape)

    def terms(objective, scale):
        facts = {"scale_NS": torch.full_like(apart_NS, scale)}
        batch = TrainBatch(
            mask_NS=mask_NS, proximal_NS=torch.zeros_like(apart_NS), advantage_NS=apart_NS.sign(), facts=facts
        )
        return objective(scale * apart_NS, batch)

    ours, plain = terms(ClippedStep(), 1.0), terms(ClippedRatio(), 1.0)
    assert torch.equal(ours.loss_NS, plain.loss_NS), "of sums it is ClippedRatio"
    means = terms(ClippedStep(), 1 / 64).metrics["clip_ratio/high"]
    near = (apart_NS - 0.19).abs() > 0.02  # log(1.2) is not 0.2
    assert torch.equal(means[near], ours.metrics["clip_ratio/high"][near]) and means.sum() > 0


def test_guidance_is_in_what_is_drawn_and_in_what_is_evaluated():
    plain, guided = Denoiser(batch=8).load(0), Denoiser(batch=8, guidance=3.0).load(0)
    ours = rollouts(guided, label=4)
    assert not torch.equal(ours[0].decisions.sample_ND, rollouts(plain, label=4)[0].decisions.sample_ND)
    decisions = Paths.stack([r.decisions for r in ours])
    behavior_NS = torch.stack([r.behavior_S for r in ours])
    assert torch.equal(guided.evaluate(decisions).logprob_NS, behavior_NS)
    assert (plain.evaluate(decisions).logprob_NS - behavior_NS).abs().max() > 0.01
    x, t, label = ours[0].decisions.state_NXD[:, 1], ours[0].decisions.time_NS[:, 1], torch.tensor([4])
    asked, unasked = plain.found(x, t, label), plain.found(x, t, torch.tensor([-1]))
    torch.testing.assert_close(guided.found(x, t, label), unasked + 3 * (asked - unasked))


@pytest.mark.parametrize(
    "model, sampling",
    [
        ("gimbal-digits", {"sampler": "flow_sde"}),
        ("gimbal-digits", {"sampler": "dance_sde", "noise": 0.3, "window": 2, "same_start": True, "reduce": "mean"}),
        ("gimbal-digits", {"sampler": "cps"}),
        ("gimbal-digits-ddim", {"sampler": "ddim", "noise": 1.0, "last": -2}),
    ],
)
def test_of_every_sampler_the_trainer_says_what_the_sampler_said(model, sampling):
    policy = Denoiser(model=model, batch=4).load(0)
    ours = rollouts(policy, label=3, **sampling)
    behavior_NS = torch.stack([r.behavior_S for r in ours])
    evaluated = policy.evaluate(Paths.stack([r.decisions for r in ours])).logprob_NS
    assert torch.equal(evaluated, behavior_NS) and behavior_NS.any(), "in float32 first ratios are exactly 1"
    assert torch.equal(behavior_NS != 0, torch.stack([r.mask_S for r in ours]))


def of_denoisers():
    """(name, run) of each recipe that trains one."""
    runs = {
        name: recipes.function(name)() for question in ("denoising", "distillation") for name in recipes.of(question)
    }
    return [(name, run) for name, run in runs.items() if isinstance(run.policy, Denoiser)]


def test_no_recipe_of_denoising_is_guided_and_each_says_how_it_reduces():
    """docs/denoising.md says so of all of them; a recipe with guidance has to say which."""
    found = of_denoisers()
    assert len(found) >= 27
    for name, run in found:
        assert run.policy.guidance == 1.0 and run.sampling.reduce in ("sum", "mean"), name


def test_each_recipe_of_denoising_says_what_a_cpu_does_not_show_and_whether_it_is_guided():
    """What is published on large models, video or judges is named, and never imitated by name."""
    for name, _ in of_denoisers():
        said = " ".join(recipes.function(name).__doc__.split())
        assert "Not shown here: " in said or "Published: " in said, name
        assert "guidance" in said or "Published: " in said, name


def test_one_step_is_a_gaussian_bandit_of_fixed_deviation():
    """Flow-GRPO at one sampled step: PPO on N(mean, std^2), written with torch's own distribution."""
    policy = Denoiser().load(0)
    ours = rollouts(policy, label=4, sampler="flow_sde", noise=0.7, last=1)
    paths = Paths.stack([row.decisions for row in ours])
    assert paths.drawn_NS.tolist() == [[True, False, False, False]] * len(ours)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1.02)
    found = policy.evaluate(paths, columns=("mean_NSD", "std_NS", "scale_NS"))
    proximal_NS = torch.stack([row.behavior_S for row in ours])
    advantage_NS = torch.tensor([1.0, -1.0, 0.5, -2.0, 3.0])[:, None].expand(-1, 4)
    batch = TrainBatch(
        mask_NS=paths.drawn_NS, proximal_NS=proximal_NS, advantage_NS=advantage_NS, facts=dict(found.columns)
    )
    terms = ClippedStep()(found.logprob_NS, batch)
    action_ND, std_N1 = paths.state_NXD[:, 1].flatten(1), found.columns["std_NS"][:, :1]
    bandit = torch.distributions.Normal(found.columns["mean_NSD"][:, 0], std_N1)
    was = torch.distributions.Normal(paths.mean_NSD[:, 0].flatten(1), std_N1)
    ratio_N = (bandit.log_prob(action_ND) - was.log_prob(action_ND)).sum(-1).exp()
    a_N = advantage_NS[:, 0]
    expected_N = -torch.minimum(ratio_N * a_N, ratio_N.clamp(0.8, 1.2) * a_N)
    assert float((ratio_N - 1).abs().min()) > 1e-3, "it has moved"
    torch.testing.assert_close(terms.loss_NS[:, 0], expected_N, atol=1e-4, rtol=1e-3)


def directory_of(tmp_path, network, scheduler, place):
    network.save_pretrained(tmp_path / place)
    scheduler.save_pretrained(tmp_path / "scheduler")
    return str(tmp_path)


def unet(**config):
    size = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "block_out_channels": (8, 16), "layers_per_block": 1}
    blocks = {"down_block_types": ("DownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D")}
    torch.manual_seed(0)
    return diffusers.UNet2DModel(**size, **blocks, norm_num_groups=4, **config)


@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "DDPMScheduler"])
def test_a_unet_of_diffusers_goes_in_is_trained_with_lora_and_comes_out(tmp_path, scheduler):
    source = directory_of(tmp_path / "in", unet(), getattr(diffusers, scheduler)(clip_sample=False), "unet")
    spec = Denoiser(model=source, batch=8, lora=LoRA(rank=2, targets=("to_q", "to_k", "to_v", "time_emb_proj")))
    policy = spec.load(0)
    names = set(policy.weights())
    assert names and all(".lora_" in name for name in names)
    ours = rollouts(policy, sampler="ddim", noise=1.0)
    decisions = Paths.stack([r.decisions for r in ours])
    evaluated = policy.evaluate(decisions).logprob_NS
    torch.testing.assert_close(evaluated, torch.stack([r.behavior_S for r in ours]), atol=1e-4, rtol=0)
    optimizer = torch.optim.SGD([w for w in policy.parameters() if w.requires_grad], lr=1e-3)
    for _ in range(2):  # B begins at 0, and A has no gradient until it is not
        policy.evaluate(decisions).logprob_NS.sum().backward()
        optimizer.step()
    policy.save(tmp_path / "out")
    again = spec.at(tmp_path / "out").load(1)
    torch.testing.assert_close(again.evaluate(decisions).logprob_NS, policy.evaluate(decisions).logprob_NS)
    theirs = diffusers.UNet2DModel.from_pretrained(tmp_path / "out" / "unet")
    x, t = numbers(2, 1, 8, 8), torch.tensor([100.0, 500.0])
    said = theirs(x, t).sample
    torch.testing.assert_close(said, policy.found(x, t, torch.tensor([-1, -1])), atol=1e-5, rtol=1e-4)
    before = diffusers.UNet2DModel.from_pretrained(tmp_path / "in" / "unet")(x, t).sample
    assert (said - before).abs().max() > 1e-4, "it was trained"
    pipeline = getattr(diffusers, scheduler.replace("Scheduler", "Pipeline"))(
        unet=theirs, scheduler=getattr(diffusers, scheduler).from_pretrained(tmp_path / "out" / "scheduler")
    )
    pipeline.set_progress_bar_config(disable=True)
    assert pipeline(num_inference_steps=3, output_type="np").images.shape == (1, 8, 8, 1)


def test_what_cannot_be_driven_is_refused_in_a_sentence(tmp_path):
    source = directory_of(tmp_path, unet(), diffusers.DDIMScheduler(), "unet")
    with pytest.raises(ValueError, match="choose ddim"):
        rollouts(Denoiser(model=source).load(0))
    with pytest.raises(ValueError, match="no unconditional class"):
        Denoiser(model=source, guidance=2.0).load(0)
    with pytest.raises(ValueError, match="has 0 classes"):
        Denoiser(model=source).load(0).label(Task(id="t", columns={"label": 3}))
    file = tmp_path / "scheduler" / "scheduler_config.json"
    said = json.loads(file.read_text())
    for change, told in (
        ({"_class_name": "HeunDiscreteScheduler"}, "drives Flow"),
        ({"thresholding": True}, "thresholding"),
    ):
        file.write_text(json.dumps(said | change))
        with pytest.raises(ValueError, match=told):
            Denoiser(model=source).load(0)
    file.write_text("{")
    with pytest.raises(ValueError, match="cannot be loaded"):
        Denoiser(model=source).load(0)
    with pytest.raises(ValueError, match=r"transformer/config\.json"):
        Denoiser(model=str(tmp_path / "nowhere")).load(0)


def test_configurations_alone_are_enough_with_fresh(tmp_path):
    source = directory_of(tmp_path, unet(), diffusers.DDPMScheduler(), "unet")
    for file in (tmp_path / "unet").glob("*.safetensors"):
        file.unlink()
    one, same, other = (Denoiser(model=source, fresh=True).load(seed) for seed in (0, 0, 1))
    pairs = [(a, b, c) for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True)]
    assert all(torch.equal(a, b) for a, b, _ in pairs) and not all(torch.equal(a, c) for a, _, c in pairs)
    for look in (Denoiser(model=source).check_files, Denoiser(model=source).load):
        with pytest.raises(
            ValueError, match=r"configurations and no weights \(unet/.*policy.fresh=true makes them anew"
        ):
            look()


def test_weights_that_were_cut_off_are_told_before_diffusers_says_anything(tmp_path, caplog):
    source = directory_of(tmp_path, unet(), diffusers.DDPMScheduler(), "unet")
    file = tmp_path / "unet" / "diffusion_pytorch_model.safetensors"
    whole = file.read_bytes()
    for cut in (len(whole) // 2, 4, 0):
        file.write_bytes(whole[:cut])
        for look in (Denoiser(model=source).check_files, Denoiser(model=source).load):
            with pytest.raises(ValueError, match=r"safetensors is cut off or damaged .*copy it once more"):
                look()
    assert not caplog.records


@pytest.mark.parametrize(
    ("file", "name", "value", "wanted"),
    [
        ("scheduler/scheduler_config.json", "shift", -1, "a number above 0"),
        ("scheduler/scheduler_config.json", "num_train_timesteps", 0, "a whole number, 1 or more"),
        ("scheduler/scheduler_config.json", "beta_end", 2.0, "a number between 0 and 1"),
        ("unet/config.json", "sample_size", 0, "a whole number, 1 or more, or two of them"),
        ("unet/config.json", "in_channels", "1", "a whole number, 1 or more"),
    ],
)
def test_settings_of_a_model_that_mean_nothing_are_refused_by_file_and_field(tmp_path, file, name, value, wanted):
    source = directory_of(tmp_path, unet(), diffusers.DDPMScheduler(), "unet")
    said = json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps(said | {name: value}))
    for look in (Denoiser(model=source).check_files, Denoiser(model=source).load):
        with pytest.raises(ValueError, match=f"{file} has {name}={value!r}; it must be {wanted}$"):
            look()
    (tmp_path / file).write_text("{")
    with pytest.raises(ValueError, match=f"{file} cannot be loaded"):
        Denoiser(model=source).check_files()


def test_guidance_has_a_limit_and_says_where_it_does_nothing():
    for guidance in (1e30, float("nan"), float("inf"), -101.0):
        with pytest.raises(ValueError, match="must be from -100 to 100, where 1 is none"):
            Denoiser(guidance=guidance)
    policy = Denoiser(guidance=3.0).load(0)
    assert "asks for none, so it does nothing there" in policy.accepts(Task(id="t"), 10)
    assert policy.accepts(Task(id="t", columns={"label": 3}), 10) == ""
    assert Denoiser().load(0).accepts(Task(id="t"), 10) == ""


def test_more_steps_than_a_model_was_trained_on_are_refused(tmp_path):
    source = directory_of(tmp_path, unet(), diffusers.DDPMScheduler(num_train_timesteps=10), "unet")
    run = replace(recipes.function("ddpo")(), policy=Denoiser(model=source))
    few, many = (replace(run, sampling=replace(run.sampling, max_length=steps)) for steps in (10, 50))
    said = [[verdict.reason for verdict in each.engine.fits(Composition(each))] for each in (few, many)]
    assert not any("noise levels" in reason for reason in said[0])
    assert any("was trained on 10 noise levels" in one and "sampling.max_length=10 or less" in one for one in said[1])


def test_columns_are_of_the_drawn_steps_alone():
    policy = Denoiser(batch=8).load(0)
    ours = rollouts(policy, count=3, first=1, last=3)
    decisions = Paths.stack([r.decisions for r in ours])
    assert (decisions.amplitude_NS > 0).tolist() == [[False, True, True, False]] * 3
    found = policy.evaluate(decisions, columns=sorted(policy.provides))
    std_NS = decisions.std_NS
    assert torch.equal(found.columns["std_NS"], std_NS) and torch.equal(std_NS > 0, decisions.amplitude_NS > 0)
    assert not found.columns["shift_NSD"].any(), "the sampler's means are those of the policy"
    z_NSD = (decisions.state_NXD[:, 2:4] - decisions.mean_NSD[:, 1:3]) / std_NS[:, 1:3, None, None, None]
    assert 0.5 < float(z_NSD.std()) < 1.5
    torch.testing.assert_close(found.columns["mean_NSD"][:, 1:3], decisions.mean_NSD.flatten(2)[:, 1:3])
    sampling = replace(ours[0].sampling, temperature=0.0)
    assert list(sampling.drawn(4)) == [1, 2] and not sampling.trainable
