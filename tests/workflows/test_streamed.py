"""Streams: what each block is told of the one before, in sampling and in training; what a network without a look at it does."""

import copy
import json
import pickle
from dataclasses import dataclass, replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal import config, recipes
from gimbal.cli import main
from gimbal.config.own import OwnError
from gimbal.dataflow.packing import pack
from gimbal.dataflow.real_samples import RealSamples
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.learning.learner import Learner
from gimbal.learning.updates.adversarial_forcing import AdversarialForcing
from gimbal.learning.updates.discriminator import AdversarialLoss
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.learning.updates.forward_process import DiffusionNFT
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import Told
from gimbal.policies.paths import NO_LABEL, Paths, PathSampling
from gimbal.records import Episode, Group, Task
from gimbal.rewards.digits import DigitClass, digits
from gimbal.runtime import compose
from gimbal.workflows.base import AbstractWorkflow, Draw
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.streamed import Streamed

ODE = PathSampling(max_length=3, sampler="ode", spacing="trailing")
SDE = PathSampling(max_length=4)
ASKED = Task(id="t", columns={"label": 5})


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return Denoiser(model="gimbal-digits-stream", batch=8).load(0)


def started(policy, workflow, slots=3):
    live = Driven(engine=Denoising(slots=slots), workflow=workflow).start(policy)
    live.load(0, policy.weights())
    return live


def asked(live, count, sampling, task=ASKED):
    for sample in range(count):
        live.submit(Request(group=0, task=task, sample=sample, sampling=sampling, seed=3))
    return live


def episodes(policy, workflow, count=2, sampling=ODE, task=ASKED):
    found = {
        key[1]: one.outcome for key, one in drained(asked(started(policy, workflow), count, sampling, task)).items()
    }
    return [found[sample] for sample in range(count)]


def made(row):
    return row.decisions.sample_ND[0]


def test_a_block_sees_the_one_before_and_is_told_no_class(policy):
    single = [episode.last for episode in episodes(policy, SingleTurn())]
    for episode, alone in zip(episodes(policy, Streamed(blocks=3)), single, strict=True):
        first, *rest = episode.rows
        assert len(rest) == 2 and torch.equal(first.decisions.state_NXD, alone.decisions.state_NXD), "as by SingleTurn"
        assert not first.decisions.given_ND.any() and int(first.decisions.label_N) == 5
        for before, row in zip(episode.rows, rest, strict=False):
            told_D = row.decisions.given_ND[0]
            assert torch.equal(told_D[:1], made(before)) and bool((told_D[1] == 1).all())
            assert int(row.decisions.label_N) == NO_LABEL and row.task == ASKED
        noise = {tuple(row.decisions.state_NXD[0, 0].flatten().tolist()) for row in episode.rows}
        assert len(noise) == 3, "each block begins at noise of its own"
    every = episodes(policy, Streamed(blocks=2, told="all"), 1)[0]
    assert [int(row.decisions.label_N) for row in every.rows] == [5, 5]


def test_at_temperature_0_a_stream_is_that_of_the_ode(policy):
    """As evaluations ask for it; it has no decision, and is an episode all the same."""
    greedy, ode = (episodes(policy, Streamed(blocks=2), 1, replace(ODE, temperature=t))[0] for t in (0.0, 1.0))
    assert all(torch.equal(made(one), made(other)) for one, other in zip(greedy.rows, ode.rows, strict=True))
    assert not any(row.mask_S.any() for row in greedy.rows)


def test_in_teacher_forcing_blocks_follow_real_digits_of_the_class(policy):
    data_KD, label_K = digits()
    streams = episodes(policy, Streamed(blocks=4, past=RealSamples()), 3)
    told = [row.decisions.given_ND[0, 0].flatten() for episode in streams for row in episode.rows[1:]]
    found = [int((data_KD - told_D).abs().sum(-1).argmin()) for told_D in told]
    assert all(torch.equal(data_KD[row], told_D) for row, told_D in zip(found, told, strict=True))
    assert {int(label_K[row]) for row in found} == {5} and len(set(found)) > 6, "others for each block and sample"
    assert not any(episode.rows[0].decisions.given_ND.any() for episode in streams)


def test_the_trainer_says_what_the_sampler_said_of_blocks_and_only_if_it_is_told_their_past(policy):
    rows = [row for episode in episodes(policy, Streamed(blocks=3), sampling=SDE) for row in episode.rows]
    decisions = Paths.stack([row.decisions for row in rows])
    behavior_NS = torch.stack([row.behavior_S for row in rows])
    with torch.no_grad():
        assert torch.equal(policy.evaluate(decisions).logprob_NS, behavior_NS)
        picked = decisions.select(torch.tensor([4, 1])).to(torch.device("cpu"))
        assert torch.equal(policy.evaluate(picked).logprob_NS, behavior_NS[[4, 1]])
        others = replace(decisions, given_ND=decisions.given_ND.roll(1, 0))
        assert (policy.evaluate(others).logprob_NS - behavior_NS).abs().max() > 0.1


@pytest.mark.parametrize(
    "update",
    [
        DiffusionNFT(draws=2),
        DistributionMatching(fake_updates=1),
        DistributionMatching(fake_updates=1, adversarial=AdversarialLoss(real=None)),
        AdversarialForcing(),
    ],
    ids=["nft", "scores", "scores and the next step", "discriminator"],
)
def test_losses_of_noised_samples_are_told_their_past(policy, update):
    group = Group(
        index=0,
        task=ASKED,
        episodes=tuple(one.scored(float(one.sample), {}) for one in episodes(policy, Streamed(blocks=2), 3)),
    )
    batch = pack([group])
    learner = Learner(copy.deepcopy(policy), update, first=lambda: copy.deepcopy(policy))
    batch = learner.update.survey(learner.models, learner.prepare(batch))[0]
    assert batch.decisions.given_ND.shape == (6, 2, 8, 8)

    def values(given_ND):
        told = replace(batch, decisions=replace(batch.decisions, given_ND=given_ND))
        return [float(loss.value.detach()) for loss in update.losses(learner.models, told)]

    own_ND = batch.decisions.given_ND
    assert values(own_ND) == values(own_ND.clone()) != values(own_ND.roll(1, 0))


@pytest.mark.parametrize("jumps", [False, True])
def test_a_network_that_is_first_told_its_past_does_as_before(jumps):
    plain = Denoiser(batch=4).load()
    told = Denoiser(history=True, jumps=jumps, batch=4).load()
    assert (told.history, told.jumps, told.sample_shape) == (True, jumps, plain.sample_shape)
    x_KD, given_KD = torch.randn(3, 1, 8, 8), torch.randn(3, 2, 8, 8)
    time_K, label_K = torch.tensor([900.0, 500.0, 20.0]), torch.tensor([1, -1, 4])
    with torch.no_grad():
        torch.testing.assert_close(told.found(x_KD, time_K, label_K, given_KD), plain.found(x_KD, time_K, label_K))


def test_what_a_network_is_told_is_known_by_its_channels(policy, tmp_path):
    for history in (False, True):
        for jumps in (False, True):
            model = Denoiser(history=history, jumps=jumps).load()
            model.save(tmp_path / "model")
            kept = Denoiser(model=str(tmp_path / "model"))
            assert (kept.load().history, kept.load().jumps, kept.sees_history) == (history, jumps, history)
    assert len({Told(channels=1, history=h, jumps=j).read for h in (False, True) for j in (False, True)}) == 4
    both = Denoiser(model="gimbal-digits-stream", jumps=True).load()
    x_KD, given_KD, time_K, label_K = (
        torch.randn(2, 1, 8, 8),
        torch.ones(2, 2, 8, 8),
        torch.ones(2),
        torch.tensor([1, 2]),
    )
    span_K = torch.tensor([0.3, 0.7])
    with torch.no_grad():
        torch.testing.assert_close(
            both.found(x_KD, time_K, label_K, given_KD, span_K), policy.found(x_KD, time_K, label_K, given_KD)
        )


def test_blocks_of_a_policy_that_does_not_look_are_independent_of_their_past():
    """Its weights for the past are 0: the second block is the same whatever the first is."""
    blind = Denoiser(history=True, batch=8).load()
    task = Task(id="t")
    own, real = (episodes(blind, Streamed(blocks=2, past=past), 1, task=task)[0] for past in (None, RealSamples()))
    assert not torch.equal(own.last.decisions.given_ND, real.last.decisions.given_ND)
    assert torch.equal(made(own.last), made(real.last))


def test_the_reward_of_a_stream_is_the_mean_over_its_blocks(policy):
    reward = DigitClass(scale="hit")
    streams = episodes(policy, Streamed(blocks=3, past=RealSamples()), 2)
    odd = replace(streams[0], rows=streams[0].rows[:2])
    scores = reward(Group(index=0, task=ASKED, episodes=(odd, streams[1])))
    for score, episode in zip(scores, (odd, streams[1]), strict=True):
        each = [reward(Group.of(0, ASKED, [row]))[0] for row in episode.rows]
        assert score == pytest.approx(sum(each) / len(each))


def test_streams_in_progress_go_on_after_a_checkpoint(policy):
    whole = episodes(policy, Streamed(blocks=3), 4)
    live, found = asked(started(policy, Streamed(blocks=3)), 4, ODE), {}
    for _ in range(7):  # in the middle of second blocks
        found |= {one.key: one for one in live.step()}
    other = started(policy, Streamed(blocks=3))
    other.load_state_dict(pickle.loads(pickle.dumps(live.state_dict())))
    found |= drained(other)
    for episode in whole:
        again = found[0, episode.sample].outcome
        assert all(torch.equal(made(one), made(two)) for one, two in zip(episode.rows, again.rows, strict=True))


@dataclass(frozen=True, kw_only=True)
class After(AbstractWorkflow):
    shape: tuple[int, ...]

    def __call__(self, attempt):
        return Episode.of((yield Draw(task=attempt.task, sample=attempt.sample, after=torch.zeros(self.shape))))


def test_what_cannot_follow_is_refused_by_name(policy):
    for wrong, name in (("workflow.blocks=1", "one is SingleTurn"), ("workflow.told=none", "first")):
        place, _, value = wrong.partition("=")
        with pytest.raises(ValueError, match=name):
            recipes.load("streams", {place: config.Text(value)})
    with pytest.raises(OwnError, match=r"it must be a finished sample of the shape \(1, 8, 8\)"):
        asked(started(policy, After(shape=(8, 8))), 1, ODE)
    with pytest.raises(OwnError, match=r"the policy sees no block before: policy='Denoiser\(history=true\)'"):
        asked(started(Denoiser().load(), After(shape=(1, 8, 8))), 1, ODE)


def test_a_network_that_draws_only_by_class_is_told_it_in_every_block(tmp_path):
    """Of a UNet, classes are all that it knows; a DiT has one more, for none."""
    said = {"_class_name": "UNet2DModel", "num_class_embeds": 10, "in_channels": 3, "out_channels": 1}
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps(said))
    run = replace(recipes.load("streams"), policy=Denoiser(model=str(tmp_path)))
    with pytest.raises(ValueError, match=r"samples only with one: set workflow\.told=all"):
        compose.check(run)
    compose.check(replace(run, workflow=Streamed(told="all"), held_out=None))


@pytest.mark.slow
def test_a_run_of_streams_goes_on_after_a_checkpoint_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["prompts_per_step=1", "num_generations=2", "held_out=None", "policy.batch=4", "checkpoint_every=1"]
    few += ["max_staleness=0", "workflow.blocks=2"]
    assert main(["train", "streams", "steps=2", *few, "--name", "whole"]) == 0
    assert main(["train", "streams", "steps=1", *few, "--name", "half"]) == 0
    assert main(["train", "--resume", "runs/half", "steps=2"]) == 0
    whole, half = (tmp_path / "runs" / name / "model/transformer" for name in ("whole", "half"))
    (file,) = whole.glob("*.safetensors")
    assert file.read_bytes() == (half / file.name).read_bytes()
