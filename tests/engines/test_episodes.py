"""The episode engine: whole episodes, reproducible, interruptible, resumable."""

import pickle
import threading
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium, Registered
from gimbal.ops import philox
from gimbal.ops.correlated import correlated
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Episode

CARTPOLE = (Categorical(observations=4, actions=2), Gymnasium(environment="CartPole-v1"))
PENDULUM = (Gaussian(observations=3, actions=1), Gymnasium(environment="Pendulum-v1"))
BOTH = pytest.mark.parametrize(("spec", "tasks"), [CARTPOLE, PENDULUM], ids=["cartpole", "pendulum"])


def engine_of(spec, slots=8, seed=0, dtype="float32"):
    policy = spec.load(seed)
    engine = Episodes(slots=slots, dtype=dtype).start(policy)
    engine.load(0, policy.state_dict())
    return engine


def request(tasks, index, sample=0, **sampling):
    return Request(
        group=index, task=tasks[index], sample=sample, sampling=StepSampling(**{"max_length": 30} | sampling), seed=0
    )


def drain(engine):
    done = {}
    while engine.in_flight:
        for finished in engine.step():
            assert finished.key not in done
            done[finished.key] = finished.rollout
    return done


def same(one, other):
    return (
        torch.equal(one.decisions.action_NSA, other.decisions.action_NSA)
        and torch.equal(one.decisions.observation_NSO, other.decisions.observation_NSO)
        and torch.equal(one.behavior_S, other.behavior_S)
        and torch.equal(one.version_S, other.version_S)
        and torch.equal(one.reward_S, other.reward_S)
        and one.stop == other.stop
    )


@BOTH
def test_a_rollout_is_what_gymnasium_plays(spec, tasks):
    engine = engine_of(spec)
    engine.submit(request(tasks, 3))
    rollout = drain(engine)[3, 0]
    rollout.validate()
    env = gymnasium.make(tasks.environment)
    seen, _ = env.reset(seed=tasks[3].seed)
    for t, action_A in enumerate(rollout.decisions.action_NSA[0]):
        np.testing.assert_array_equal(rollout.decisions.observation_NSO[0, t].numpy(), seen)
        action = int(action_A) if isinstance(spec, Categorical) else action_A.numpy().clip(-2, 2)
        seen, reward, terminated, _, _ = env.step(action)
        assert float(rollout.reward_S[t]) == pytest.approx(float(reward))
        assert terminated == (rollout.stop == "terminated" and t == rollout.length - 1)
    np.testing.assert_array_equal(rollout.decisions.final_NO[0].numpy(), seen)


def test_how_episodes_end():
    engine = engine_of(CARTPOLE[0])
    engine.submit(request(CARTPOLE[1], 0, max_length=500))
    engine.submit(request(CARTPOLE[1], 1, max_length=5))
    engine.submit(request(CARTPOLE[1], 2, max_length=500, temperature=0.0))
    done = drain(engine)
    assert done[0, 0].stop == "terminated" and bool(done[0, 0].decisions.terminated_N)
    assert done[1, 0].stop == "truncated" and done[1, 0].length == 5 and not bool(done[1, 0].decisions.terminated_N)
    assert not done[2, 0].behavior_S.any()  # greedy: log 1
    swing = engine_of(PENDULUM[0])
    swing.submit(request(PENDULUM[1], 0, max_length=1000))
    rollout = drain(swing)[0, 0]
    assert rollout.stop == "truncated" and rollout.length == 200  # the environment's own limit


@BOTH
def test_a_rollout_does_not_depend_on_its_neighbours(spec, tasks):
    crowded, alone = engine_of(spec, slots=3), engine_of(spec, slots=1)
    for index in range(7):
        crowded.submit(request(tasks, index))
    alone.submit(request(tasks, 5))
    one, other = drain(crowded)[5, 0], drain(alone)[5, 0]
    assert one.length == other.length
    torch.testing.assert_close(one.decisions.action_NSA, other.decisions.action_NSA)
    torch.testing.assert_close(one.behavior_S, other.behavior_S)


def test_samples_of_one_task_start_alike_and_differ():
    engine = engine_of(PENDULUM[0])
    for sample in range(2):
        engine.submit(request(PENDULUM[1], 0, sample=sample))
    one, other = drain(engine).values()
    assert torch.equal(one.decisions.observation_NSO[:, 0], other.decisions.observation_NSO[:, 0])
    assert not torch.equal(one.decisions.action_NSA, other.decisions.action_NSA)


@BOTH
def test_two_engines_give_the_same_bits(spec, tasks):
    runs = []
    for _ in range(2):
        engine = engine_of(spec, slots=3)
        for index in range(6):
            engine.submit(request(tasks, index))
        runs.append(drain(engine))
    assert all(same(runs[0][key], runs[1][key]) for key in runs[0])


@BOTH
def test_weights_loaded_in_flight_draw_the_later_decisions(spec, tasks):
    engine = engine_of(spec)
    engine.submit(request(tasks, 0))
    for _ in range(4):
        assert not engine.step()
    later = spec.load(1)
    with torch.no_grad():
        for parameter in later.parameters():
            parameter.add_(0.05)
    engine.load(7, later.state_dict())
    rollout = drain(engine)[0, 0]
    assert rollout.version_S.tolist() == [0] * 4 + [7] * (rollout.length - 4) and rollout.oldest == 0
    with torch.no_grad():
        first_S = spec.load(0).evaluate(rollout.decisions).logprob_NS[0]
        later_S = later.evaluate(rollout.decisions).logprob_NS[0]
    torch.testing.assert_close(rollout.behavior_S[:4], first_S[:4])
    torch.testing.assert_close(rollout.behavior_S[4:], later_S[4:])
    assert (first_S - later_S).abs()[4:].max() > 1e-3
    torch.testing.assert_close(engine.score(rollout), later_S)


def test_a_loaded_engine_keeps_its_own_copy():
    policy = CARTPOLE[0].load(0)
    engine = Episodes(slots=1).start(policy)
    engine.load(0, policy.state_dict())
    engine.submit(request(CARTPOLE[1], 0))
    rollout = drain(engine)[0, 0]
    before_S = engine.score(rollout)
    with torch.no_grad():
        policy.logits[0].weight.add_(1.0)
    assert torch.equal(engine.score(rollout), before_S)


@BOTH
def test_cancelled_requests_give_back_what_was_drawn(spec, tasks):
    engine = engine_of(spec, slots=2)
    for index in range(3):
        engine.submit(request(tasks, index))
    for _ in range(3):
        engine.step()
    assert engine.cancel((2, 0)) is None  # still waiting for a slot
    cut = engine.cancel((0, 0))
    assert cut is not None and cut.stop == "cancelled" and cut.length == 3
    cut.validate()
    assert engine.in_flight == 1 and set(drain(engine)) == {(1, 0)}
    with pytest.raises(KeyError):
        engine.cancel((0, 0))


@BOTH
def test_a_resumed_engine_goes_on_to_the_same_bits(spec, tasks):
    engine = engine_of(spec, slots=3)
    for index in range(6):
        engine.submit(request(tasks, index))
    done = [finished for _ in range(8) for finished in engine.step()]
    state = pickle.loads(pickle.dumps(engine.state_dict()))
    rest = drain(engine)
    resumed = engine_of(spec, slots=3)
    resumed.load_state_dict(state)
    assert resumed.in_flight == 6 - len(done)
    again = drain(resumed)
    assert rest.keys() == again.keys() and all(same(rest[key], again[key]) for key in rest)


def segments(correlation, resumed_at=()):
    """The rows of an episode of 30 steps in segments of 7, drawn by an engine that is made anew before some of its steps."""
    policy, rows, steps = SquashedGaussian(observations=3, actions=2, bound=2.0).load(0), [], 0
    tasks = Gymnasium(environment=f"{__file__}:Pushed")

    def made():
        engine = Episodes(slots=1, segment=7, correlation=correlation).start(policy)
        engine.load(0, policy.state_dict())
        return engine

    engine = made()
    for index in range(5):  # the task of all but the first counts for nothing: the episode goes on
        engine.submit(request(tasks, index))
        while engine.in_flight:
            if steps in resumed_at:
                state = pickle.loads(pickle.dumps(engine.state_dict()))
                engine = made()
                engine.load_state_dict(state)
            rows += [finished.rollout for finished in engine.step()]
            steps += 1
    assert [row.length for row in rows] == [7, 7, 7, 7, 2]
    return policy, tasks, rows


def test_no_episode_goes_on_from_what_proves_the_delivery():
    """A canary is of a group below 0. Its steps train nobody, and would count in the return of the episode."""
    tasks = Gymnasium(environment=f"{__file__}:Pushed")
    engine = Episodes(slots=1, segment=7).start(
        policy := SquashedGaussian(observations=3, actions=2, bound=2.0).load(0)
    )
    engine.load(0, policy.state_dict())
    for group in (-1, 0, 1):
        engine.submit(replace(request(tasks, 0), group=group))
        drain(engine)
    assert [len(stream.actions) for stream in engine._paused] == [14]


class Pushed(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,))

    def reset(self, *, seed=None, options=None):
        self.at = np.zeros(3)
        return self.at, {}

    def step(self, action):
        self.at = 0.9 * self.at + np.append(action, 1.0)
        return self.at, 1.0, False, False, {}


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_noise_lasts_over_the_segments_of_an_episode(correlation):
    policy, tasks, rows = segments(correlation)
    white = [policy.noise(philox("episode", *request(tasks, index).stream), 7) for index in range(5)]
    noise_TA = torch.cat(white) if not correlation else correlated(torch.cat(white), None, correlation)
    seen_TO = torch.cat([row.decisions.observation_NSO[0] for row in rows])
    action_TA, logprob_T = zip(
        *(policy.draw(o[None], e[None], torch.ones(1)) for o, e in zip(seen_TO, noise_TA, strict=False)), strict=True
    )
    assert torch.equal(torch.cat([row.decisions.action_NSA[0] for row in rows]), torch.cat(action_TA).detach())
    assert torch.equal(torch.cat([row.behavior_S for row in rows]), torch.cat(logprob_T).detach())


def test_noise_that_lasts_is_resumed_to_the_same_bits():
    """Within segments, between two of them, and twice in one."""
    rest, again = segments(0.9)[2], segments(0.9, resumed_at=(3, 7, 16, 18, 29))[2]
    assert all(same(one, other) for one, other in zip(rest, again, strict=True))
    assert not same(segments(0.0)[2][1], rest[1])


class Unrepeatable(gymnasium.Env):
    """Its state hangs on something that no seed resets."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    clock = 0.0

    def reset(self, *, seed=None, options=None):
        return self.look(), {}

    def step(self, action):
        return self.look(), 1.0, False, False, {}

    def look(self):
        Unrepeatable.clock += 1
        return np.full(4, Unrepeatable.clock)


def test_an_environment_that_does_not_repeat_is_not_resumed():
    gymnasium.register("gimbal/Unrepeatable-v0", entry_point=Unrepeatable)
    engine = engine_of(CARTPOLE[0])
    engine.submit(request(Gymnasium(environment="gimbal/Unrepeatable-v0"), 0))
    engine.step()
    with pytest.raises(ValueError, match=r"replayed.*gimbal eval RUN"):
        engine_of(CARTPOLE[0]).load_state_dict(engine.state_dict())


def test_a_segment_that_breaks_names_the_task_that_its_episode_began_with():
    gymnasium.register("gimbal/Breaking-v0", entry_point=Breaking)
    tasks = Gymnasium(environment="gimbal/Breaking-v0")
    for segment, kind in ((4, Drop), (3, Episode)):  # it breaks at a segment's first step, and at its second
        policy = CARTPOLE[0].load(0)
        engine = Episodes(slots=1, segment=segment).start(policy)
        engine.load(0, policy.state_dict())
        found = []
        for index in range(2):
            engine.submit(request(tasks, index))
            while engine.in_flight:
                found += engine.step()
        assert isinstance(found[1].outcome, kind)
        assert found[1].settled.task == tasks[0].id and f"for task {tasks[0].id}, turn 4" in found[1].settled.said


class Breaking(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(4), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            raise OSError("gone")
        return np.zeros(4), 1.0, False, False, {}


GATE = threading.Event()


class Sticky(gymnasium.Env):
    """Of one of its tasks the third step never returns; of another it raises."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps, self.kind = 0, SEEDS.get(seed)
        if self.kind == "reset":
            raise OSError("no server")
        return np.zeros(4), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and self.kind == "hangs":
            GATE.wait()
        if self.steps == 3 and self.kind == "raises":
            raise OSError("gone")
        return np.full(4, self.steps), 1.0, self.steps == 6, False, {}


SEEDS = {}


def test_an_environment_that_never_returns_costs_its_own_episode_alone():
    gymnasium.register("gimbal/Sticky-v0", entry_point=Sticky)
    tasks = Gymnasium(environment="gimbal/Sticky-v0")
    SEEDS.update({tasks[1].seed: "hangs", tasks[2].seed: "raises", tasks[4].seed: "reset"})
    policy = CARTPOLE[0].load(0)
    engine = Episodes(slots=8, deadline=0.05).start(policy)
    engine.load(0, policy.state_dict())
    for index in range(6):
        engine.submit(request(tasks, index))
    done = {}
    while engine.in_flight:
        done |= {item.key[0]: item.outcome for item in engine.step()}
    GATE.set()
    assert [done[n].stop for n in (0, 3, 5)] == ["terminated"] * 3 and [done[n].length for n in (0, 3, 5)] == [6] * 3
    assert done[1].error == f"environment step for task {tasks[1].id}, turn 2 did not answer within 0.05 s"
    assert done[2].error.startswith(
        f"environment step for task {tasks[2].id}, turn 2 raised OSError: gone (test_episodes.py"
    )
    assert (done[1].length, done[2].length, done[1].stop) == (2, 2, "error")
    assert done[4].reason == "environment_error"
    assert done[4].said.startswith(
        f"environment reset for task {tasks[4].id}, turn 0 raised OSError: no server (test_ep"
    )


class Own(CartPoleEnv):
    """A user's, whatever it is made of."""


@pytest.mark.parametrize("source", ["CartPole-v1", "gimbal/OwnCart-v0"])
def test_code_that_cannot_hang_runs_in_the_callers_thread_and_any_other_in_one_of_its_own(monkeypatch, source):
    if source not in gymnasium.registry:
        gymnasium.register(source, entry_point=Own, max_episode_steps=500)
    seen, step = [], CartPoleEnv.step

    def spied(self, action):
        seen.append(threading.get_ident())
        if len(seen) == 4:
            raise OSError("gone")
        return step(self, action)

    monkeypatch.setattr(CartPoleEnv, "step", spied)
    engine, tasks = engine_of(CARTPOLE[0]), Gymnasium(environment=source)
    engine.submit(request(tasks, 0))
    found = []
    while engine.in_flight:
        found += engine.step()
    assert [one == threading.get_ident() for one in seen] == [source == "CartPole-v1"] * 4
    assert found[0].outcome.rows[0].length == 3
    assert found[0].outcome.error.startswith(
        f"environment step for task {tasks[0].id}, turn 3 raised OSError: gone (test_episodes.py"
    )


def test_a_copied_environment_goes_its_own_way_from_the_same_state():
    one = Registered(source="CartPole-v1").open()
    one.reset(CARTPOLE[1][0], 0)
    one.step(np.array([1]))
    other = one.fork()
    one.step(np.array([0]))
    left, right = one.step(np.array([0])).observation, [other.step(np.array([0])) for _ in range(2)][-1].observation
    np.testing.assert_array_equal(left, right)
    assert (other.step(np.array([1])).observation != one.step(np.array([0])).observation).any()


@BOTH
def test_recorded_log_probs_are_those_of_the_trainer(spec, tasks):
    """Exactly so in float32; in bfloat16 apart, within the engine's stated tolerance."""
    policy, gaps = spec.load(0), {}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    for dtype in ("float32", "bfloat16"):
        engine = Episodes(slots=4, dtype=dtype).start(policy)
        engine.load(0, policy.state_dict())
        for index in range(4):
            engine.submit(request(tasks, index))
        gaps[dtype] = []
        for rollout in drain(engine).values():
            torch.testing.assert_close(rollout.behavior_S, engine.score(rollout), atol=1e-5, rtol=1e-4)
            with torch.no_grad():
                gap_S = (policy.evaluate(rollout.decisions).logprob_NS[0] - rollout.behavior_S).abs()
            assert float(gap_S.mean()) < engine.tolerance
            gaps[dtype].append(float(gap_S.mean()))
    assert max(gaps["float32"]) < 1e-5 < max(gaps["bfloat16"])


def test_real_actions_are_recorded_as_drawn():
    engine = engine_of(Gaussian(observations=3, actions=1, log_std=2.0))
    engine.submit(request(PENDULUM[1], 0))
    assert drain(engine)[0, 0].decisions.action_NSA.abs().max() > 2.0  # the torque limit


def test_tasks_are_the_same_for_the_same_index_and_seed():
    tasks = Gymnasium(environment="CartPole-v1", seed=1)
    assert tasks[4] == tasks[4] and tasks[4].seed != tasks[5].seed
    assert tasks[4].seed != Gymnasium(environment="CartPole-v1", seed=2)[4].seed
    with pytest.raises(IndexError):
        tasks[len(tasks)]


def test_bad_input_is_refused_in_words():
    engine = engine_of(CARTPOLE[0])
    with pytest.raises(ValueError, match=r"top_k=2.* needs sampling=StepSampling"):
        engine.submit(replace(request(CARTPOLE[1], 0), sampling=Sampling(top_k=2)))
    for policy, environment, words in (
        (CARTPOLE[0], "Pendulum-v1", "1 real actions, but the policy has 4 observations, 2 choices"),
        (CARTPOLE[0], "NoSuchThing-v0", "NoSuchThing"),
        (CARTPOLE[0], "FrozenLake-v1", "16 observations, 4 choices, but the policy has"),
    ):
        engine = engine_of(policy)
        engine.submit(request(Gymnasium(environment=environment), 0))
        with pytest.raises(ValueError, match=words):
            engine.step()
    with pytest.raises(ValueError, match="slots"):
        Episodes(slots=0)
    with pytest.raises(ValueError, match=r"from 0 \(none\) to 1"):
        Episodes(correlation=-0.5)
