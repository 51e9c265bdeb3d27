"""The denoising engine: the trainer's own log-probabilities, samples that depend on nothing beside them, paths that can be resumed."""

import pickle
from dataclasses import replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from diffusers import FlowMatchEulerDiscreteScheduler

from gimbal import config, recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import TOLERANCE, Denoising
from gimbal.engines.receipts import tensors
from gimbal.environments.shown_pictures import ShownPictures
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import Process
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Task

POLICY = Denoiser(batch=16)


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return POLICY.load(0)


def engine_of(policy, **fields):
    engine = Denoising(**fields).start(policy)
    engine.load(0, policy.weights())
    return engine


def ask(engine, samples, task="t", **sampling):
    for sample in samples:
        engine.submit(
            Request(
                group=0,
                task=Task(id=task),
                sample=sample,
                sampling=PathSampling(**{"max_length": 5} | sampling),
                seed=3,
            )
        )
    return engine


def drawn(engine):
    return {key[1]: finished.rollout for key, finished in drained(engine).items()}


def same(one, other):
    return torch.equal(one.decisions.state_NXD, other.decisions.state_NXD) and torch.equal(
        one.behavior_S, other.behavior_S
    )


def test_the_sampler_says_what_the_trainer_says_so_first_ratios_are_exactly_1(policy):
    rows = list(drawn(ask(engine_of(policy, slots=7), range(20))).values())
    behavior_NS = torch.stack([row.behavior_S for row in rows])
    decisions = Paths.stack([row.decisions for row in rows])
    logprob_NS = policy.evaluate(decisions).logprob_NS
    assert logprob_NS.requires_grad and (logprob_NS - behavior_NS).abs().max() <= 1e-4
    assert torch.equal((logprob_NS - behavior_NS).exp(), torch.ones_like(behavior_NS))
    some = torch.tensor([11, 3, 17])
    assert torch.equal(policy.evaluate(decisions.select(some)).logprob_NS, logprob_NS[some]), (
        "whatever else is evaluated"
    )
    assert behavior_NS[:, :-1].abs().min() > 0 and not behavior_NS[:, -1].any(), "the last step is not drawn"


def test_a_sample_is_the_same_whatever_is_drawn_beside_it(policy):
    many = drawn(ask(engine_of(policy, slots=16), range(20)))
    engine = ask(engine_of(policy, slots=3), [5])
    engine.step()
    few = drawn(ask(engine, [13, 2]))  # at other noise levels than the first
    assert all(same(few[sample], many[sample]) for sample in (5, 13, 2))
    assert not same(many[0], many[1])
    assert not same(many[5], drawn(ask(engine_of(policy), [5], task="other"))[5])


def test_at_temperature_0_it_is_the_ode_and_nothing_is_drawn(policy):
    (row,) = drawn(ask(engine_of(policy), [0], temperature=0.0)).values()
    schedule, x = policy.schedule(PathSampling(max_length=5)), row.decisions.state_NXD[:, 0]
    with torch.no_grad():
        for place in range(5):
            v = policy.found(x, schedule.time_S[place : place + 1], torch.tensor([-1]))
            x = x - (schedule.level_SL[place, 1] - schedule.level_SL[place, 3]) * v
    torch.testing.assert_close(x, row.decisions.sample_ND, atol=1e-5, rtol=0)
    assert not row.mask_S.any() and not row.behavior_S.any()


def test_trailing_steps_of_a_flow_are_even_and_the_schedulers_last_is_almost_without_noise(policy):
    (row,) = drawn(ask(engine_of(policy), [0], max_length=4, spacing="trailing")).values()
    assert row.decisions.level_NSL[0, :, 1].tolist() == [1.0, 0.75, 0.5, 0.25]
    assert row.decisions.level_NSL[0, :, 3].tolist() == [0.75, 0.5, 0.25, 0.0]
    assert row.decisions.time_NS[0].tolist() == [1000, 750, 500, 250]
    (usual,) = drawn(ask(engine_of(policy), [0], max_length=4)).values()
    assert float(usual.decisions.level_NSL[0, -1, 1]) == pytest.approx(1e-3)
    one = [
        drawn(ask(engine_of(policy), [0], max_length=1, sampler="ode", spacing=s))[0] for s in ("trailing", "scheduler")
    ]
    assert same(*one), "a single step is the same"


def test_a_spacing_that_is_none_and_one_that_a_scheduler_sets_itself_are_refused():
    with pytest.raises(ValueError, match=r"spacing.*trailing"):
        recipes.load("dmd2", {"sampling.spacing": config.Text("even")})
    with pytest.raises(ValueError, match=r"is for flows, .* DDIMScheduler: set timestep_spacing"):
        ask(engine_of(Denoiser(model="gimbal-digits-ddim").load(0)), [0], sampler="ddim", spacing="trailing")


def test_windows_are_of_a_group_and_starts_can_be_shared(policy):
    places = set()
    for task in map(str, range(6)):
        rows = drawn(ask(engine_of(policy), range(2), task=task, window=2, same_start=True, max_length=8))
        assert rows[0].mask_S.tolist() == rows[1].mask_S.tolist() and rows[0].mask_S.sum() == 2
        places.add(int(rows[0].mask_S.nonzero()[0]))
        assert torch.equal(rows[0].decisions.state_NXD[:, 0], rows[1].decisions.state_NXD[:, 0])
        assert not same(rows[0], rows[1])
    assert len(places) > 1 and max(places) <= 5


def test_a_resumed_engine_goes_on_to_the_same_bits(policy):
    whole = ask(engine_of(policy, slots=3), range(6))
    for _ in range(2):
        whole.step()
    state = pickle.loads(pickle.dumps(whole.state_dict()))
    resumed = engine_of(policy, slots=3)
    resumed.load_state_dict(state)
    one, other = drawn(whole), drawn(resumed)
    assert one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)


def test_new_weights_count_from_the_next_step_on_and_each_step_says_whose_it_is(policy):
    engine = ask(engine_of(policy), range(2))
    engine.step()
    moved = {name: weight + 0.02 for name, weight in policy.weights().items()}
    engine.load(1, moved)
    rows = drawn(engine)
    assert rows[0].version_S.tolist() == [0, 1, 1, 1, 1] and rows[0].oldest == 0
    plain = drawn(ask(engine_of(policy), range(2)))
    first, later = (
        (rows[0].decisions.state_NXD[0, s] - plain[0].decisions.state_NXD[0, s]).abs().max() for s in (1, 2)
    )
    assert first == 0 and later > 1e-3


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_copy_in_another_precision_differs_within_its_tolerance_and_can_be_read(policy, precision):
    engine = ask(engine_of(policy, precision=precision), range(12), max_length=10)
    assert engine.manifest(tensors(policy)) == engine.reading().prints
    rows = list(drawn(engine).values())
    decisions = Paths.stack([row.decisions for row in rows])
    gap_NS = (policy.evaluate(decisions).logprob_NS - torch.stack([row.behavior_S for row in rows])).abs()
    assert 0.005 < float(gap_NS.detach().mean()) < TOLERANCE[precision]
    scored_S = engine.score(rows[0])
    torch.testing.assert_close(scored_S, rows[0].behavior_S, atol=2e-2 if precision == "bfloat16" else 1e-4, rtol=0)
    wrong = {
        name: 1.01 * weight if weight.requires_grad else weight
        for name, weight in policy.state_dict(keep_vars=True).items()
    }
    assert engine.manifest(wrong) != engine.reading().prints


def test_what_is_cancelled_comes_back_as_far_as_it_was_drawn(policy):
    engine = ask(engine_of(policy, slots=1), range(2))
    engine.step()
    assert [f.rollout.length for f in engine.partial_rollouts()] == [1]
    row = engine.cancel((0, 0))
    assert row.length == 1 and row.stop == "cancelled" and engine.cancel((0, 1)) is None and not engine.in_flight


def test_samplings_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"sampling\.noise"):
        PathSampling(temperature=0.5)
    with pytest.raises(ValueError, match="above 0"):
        PathSampling(noise=0.0)
    assert list(replace(PathSampling(max_length=4), last=4).drawn(4)) == [0, 1, 2], "the last step is never drawn"


def fork(engine, row, kept, *, sample, **sampling):
    request = Request(
        group=0, task=row.task, sample=sample, sampling=PathSampling(**{"max_length": 5} | sampling), seed=3
    )
    engine.extend(request, row, first=kept)
    return engine


@pytest.mark.parametrize("kept", [1, 2, 4])
@pytest.mark.parametrize("sampling", [{}, {"same_start": True, "sampler": "dance_sde", "noise": 0.3}], ids=str)
def test_a_fork_of_a_path_under_its_own_request_is_that_path_to_the_bit(policy, kept, sampling):
    whole = drawn(ask(engine_of(policy), [4], **sampling))[4]
    found = drawn(fork(engine_of(policy), whole, kept, sample=4, **sampling))[4]
    for name in ("state_NXD", "level_NSL", "time_NS", "mean_NSD", "std_NS"):
        assert torch.equal(vars(found.decisions)[name], vars(whole.decisions)[name]), name
    own_S = torch.arange(5) >= kept
    assert torch.equal(found.behavior_S, whole.behavior_S * own_S) and torch.equal(found.mask_S, whole.mask_S & own_S)
    assert torch.equal(found.decisions.amplitude_NS, whole.decisions.amplitude_NS * own_S)
    assert int(found.decisions.cost_N) == max(1, 4 - kept) * 64, "what it took over is not evaluated again"


def test_a_fork_of_a_fork_shares_with_both_and_the_trainer_says_what_the_sampler_said(policy):
    engine = engine_of(policy, slots=2)
    trunk = drawn(ask(engine, [0]))[0]
    engine.load(1, {name: weight + 0.01 for name, weight in policy.weights().items()})
    one = drawn(fork(engine, trunk, 1, sample=1))[1]
    two = drawn(fork(engine, one, 3, sample=2))[2]
    assert one.version_S.tolist() == [0, 1, 1, 1, 1] and two.version_S.tolist() == [0, 1, 1, 1, 1]
    assert torch.equal(one.decisions.state_NXD[:, :2], trunk.decisions.state_NXD[:, :2])
    assert torch.equal(two.decisions.state_NXD[:, :4], one.decisions.state_NXD[:, :4])
    apart = (two.decisions.state_NXD[0, 4] - one.decisions.state_NXD[0, 4]).abs().max()
    assert apart > 1e-2, "its own noise from there on"
    engine.load(2, policy.weights())
    both = list(drawn(fork(fork(engine, trunk, 1, sample=1), trunk, 3, sample=2)).values())
    behavior_NS = torch.stack([row.behavior_S for row in both])
    logprob_NS = policy.evaluate(Paths.stack([row.decisions for row in both])).logprob_NS
    assert torch.equal((logprob_NS - behavior_NS).exp(), torch.ones(2, 5)) and (behavior_NS != 0).sum() == 3 + 1
    assert all(torch.equal(engine.score(row), row.behavior_S) for row in both)


def test_an_engine_with_forks_under_way_and_waiting_goes_on_to_the_same_bits(policy):
    trunk = drawn(ask(engine_of(policy), [0]))[0]

    def begun():
        engine = engine_of(policy, slots=2)
        for sample, kept in ((1, 1), (2, 2), (3, 3), (4, 1)):
            fork(engine, trunk, kept, sample=sample)
        return engine

    whole, expected = begun(), drawn(begun())
    whole.step()
    state = pickle.loads(pickle.dumps(whole.state_dict()))
    assert len(state["live"]) == 2 and len(state["trunks"]) == 2
    resumed = engine_of(policy, slots=2)
    resumed.load_state_dict(state)
    for found in (drawn(whole), drawn(resumed)):
        assert found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
        assert all(torch.equal(found[key].mask_S, expected[key].mask_S) for key in expected)
    assert not whole.state_dict()["trunks"] and not resumed.state_dict()["trunks"]


def test_a_cancelled_fork_comes_back_only_if_it_drew_something_itself(policy):
    trunk = drawn(ask(engine_of(policy), [0]))[0]
    engine = engine_of(policy, slots=1)
    fork(fork(engine, trunk, 2, sample=1), trunk, 2, sample=2)
    assert engine.cancel((0, 2)) is None and list(engine.state_dict()["trunks"]) == [(0, 1)], "it has not begun"
    engine.step()
    assert [item.rollout.length for item in engine.partial_rollouts()] == [3]
    row = engine.cancel((0, 1))
    assert row.length == 3 and row.mask_S.tolist() == [False, False, True] and not engine.in_flight


def test_a_fork_with_other_noise_levels_than_its_path_is_refused(policy):
    trunk, engine = drawn(ask(engine_of(policy), [0]))[0], engine_of(policy)
    with pytest.raises(ValueError, match="a branch of 7 denoising steps has other noise levels than the 5 steps"):
        fork(engine, trunk, 2, sample=1, max_length=7)
    assert not engine.in_flight and not engine.state_dict()["trunks"]


PARTS = {"sampler": "ode", "spacing": "trailing"}


@pytest.fixture(scope="module")
def completing():
    return Denoiser(model="gimbal-digits-shown").load(0)


def from_means(policy, **sampling):
    """A sample of a digit of which the means over 4x4 pixels are shown; these means; its noise."""
    task = ShownPictures(kinds=("refine",), block=4)[0]
    sampling = PathSampling(**PARTS | sampling)
    engine = engine_of(policy)
    for number, own in enumerate((sampling, replace(sampling, strength=1.0, told=0.0))):
        engine.submit(Request(group=number, task=task, sample=0, sampling=own, seed=3))
    shown, alone = (finished.rollout.decisions for _, finished in sorted(drained(engine).items()))
    return shown, torch.tensor(task.columns["given"])[:64].reshape(1, 8, 8), alone.state_NXD[0, 0]


def test_a_path_begins_with_what_is_shown_and_the_network_takes_it_as_it_is_told(completing):
    one, means_D, eps_D = from_means(completing, max_length=1, strength=0.8, told=0.5)
    start_D = 0.2 * means_D + 0.8 * eps_D
    torch.testing.assert_close(one.state_NXD[0, 0], start_D)
    assert one.level_NSL[0, 0].tolist() == [0.5, 0.5, 1.0, 0.0] and one.time_NS[0].tolist() == [500]
    with torch.no_grad():
        v_KD = completing.found(start_D[None], torch.tensor([500.0]), torch.tensor([-1]), one.given_ND)
    torch.testing.assert_close(one.sample_ND, start_D[None] - 0.5 * v_KD, rtol=1e-4, atol=1e-4)


def test_told_0_is_as_much_noise_as_there_is_and_strength_1_begins_with_noise_alone(completing):
    same_told, *_ = from_means(completing, max_length=2, strength=0.6)
    given, *_ = from_means(completing, max_length=2, strength=0.6, told=0.6)
    assert torch.equal(same_told.state_NXD, given.state_NXD)
    torch.testing.assert_close(given.level_NSL[0, :, 1], torch.tensor([0.6, 0.3]))
    whole, _, eps_D = from_means(completing, max_length=2, strength=1.0, told=1.0)
    assert torch.equal(whole.state_NXD[0, 0], eps_D) and whole.level_NSL[0, :, 1].tolist() == [1.0, 0.5]


def test_what_is_shown_is_noised_as_a_schedule_is_shifted(completing):
    process = Process(FlowMatchEulerDiscreteScheduler(shift=3.0))
    noise = float(process.schedule(1, trailing=True, begins=0.5).level_SL[0, 1])
    assert noise == pytest.approx(0.75)
    state_KD, *_ = process.noised(torch.ones(1, 1, 8, 8), torch.zeros(1, 1, 8, 8), torch.tensor([0.5]))
    assert float(state_KD[0, 0, 0, 0]) == pytest.approx(1 - noise)


@pytest.mark.parametrize(
    ("sampling", "why"),
    [
        ({"strength": 0.0}, "strength is above 0"),
        ({"told": 1.5}, "told from 0"),
        ({"strength": 0.8, "spacing": "scheduler"}, "set sampling.spacing=trailing"),
    ],
)
def test_starts_that_make_no_sense_are_refused(sampling, why):
    with pytest.raises(ValueError, match=why):
        PathSampling(**PARTS | sampling)


def test_a_policy_that_sees_no_picture_cannot_begin_with_one(policy):
    with pytest.raises(ValueError, match=r"sees no picture to begin with: set sampling\.strength=1"):
        ask(engine_of(policy), [0], strength=0.8, **PARTS).step()
