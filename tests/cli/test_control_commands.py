"""Control as users type it: worlds whose episodes end, micro-batches, recorded data, and a newcomer's mistakes."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytest.importorskip("gymnasium")

import torch
import yaml

from gimbal import cli, config
from gimbal.environments.gym import Gymnasium

ENVIRONMENTS = '''
import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Line(gymnasium.Env):
    """A place that is pushed left and right; it ends after six steps."""

    observation_space = spaces.Box(-10, 10, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.uniform(-1, 1), 0
        return np.array([self.place, 0], np.float32), {}

    def step(self, action):
        self.place, self.steps = self.place + 0.1 * float(np.asarray(action).reshape(-1)[0]), self.steps + 1
        return np.array([self.place, self.steps], np.float32), -abs(self.place), self.steps >= 6, False, {}


class Choices(Line):
    action_space = spaces.Discrete(2)


class Free(Line):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Bare(gymnasium.Env):
    """No spaces."""


class Broken(Line):
    """After two steps it answers as its fault says."""

    fault = "reward"

    def reset(self, *, seed=None, options=None):
        seen, info = super().reset(seed=seed)
        return {"reset": seen, "start": (seen * np.nan, info)}.get(self.fault, (seen, info))

    def step(self, action):
        seen, reward, ended, cut, info = super().step(action)
        if self.steps < 3:
            return seen, reward, ended, cut, info
        if self.fault == "raises":
            raise RuntimeError("out of paint")
        return {
            "reward": (seen, np.nan, ended, cut, info),
            "infinite": (seen, np.inf, ended, cut, info),
            "nothing": (seen, None, ended, cut, info),
            "seen": (seen * np.nan, reward, ended, cut, info),
            "shape": (np.append(seen, 0), reward, ended, cut, info),
            "old": (seen, reward, ended, info),
            "end": (seen, reward, "no", cut, info),
            "words": ("hello", reward, ended, cut, info),
        }.get(self.fault, (seen, reward, ended, cut, info))


class Drifting(Line):
    """What is outside of it changes its answers."""

    def step(self, action):
        seen, *rest = super().step(action)
        return seen + np.float32(os.path.exists("drift")), *rest


class Choosy(Line):
    """It begins with two tasks of three; the first is none of them."""

    def reset(self, *, seed=None, options=None):
        if seed % 3 == 2:
            raise RuntimeError("no such level")
        return super().reset(seed=seed)


class Bits(gymnasium.Env):
    """Three bits that are flipped one at a time until they are those that are wanted."""

    bits = spaces.Box(0, 1, (3,), np.float32)
    observation_space = spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
    action_space = spaces.Discrete(3)
    bonus = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        (self.now, self.wanted), self.steps = self.np_random.integers(0, 2, (2, 3)).astype(np.float32), 0
        return self.seen(), {}

    def seen(self):
        return {"observation": self.now, "achieved_goal": self.now, "desired_goal": self.wanted}

    def step(self, action):
        self.now, self.steps = self.now.copy(), self.steps + 1
        self.now[action] = 1 - self.now[action]
        reward = self.compute_reward(self.now, self.wanted, {})
        return self.seen(), reward + self.bonus, False, self.steps >= 4, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 0.0 if all(achieved_goal == desired_goal) else -1.0


class Paid(Bits):
    bonus = 0.5


class BrokenChoices(Broken):
    action_space = spaces.Discrete(2)


for fault in ("reward", "infinite", "nothing", "seen", "shape", "old", "end", "words", "raises", "reset", "start"):
    for kind in (Broken, BrokenChoices):
        name = f"{kind.__name__}-{fault}"
        globals()[name.replace("-", "_")] = type(name, (kind,), {"fault": fault})


def over(seen_KO):
    return seen_KO[:, 1] > 5.5
'''
OFF_POLICY = ("steps=3", "learning_starts=5", "store.minibatch=8", "threads=1", "checkpoint_every=1")
RECORDED = ("steps=1", "store.moves=2", "store.minibatch=8", "threads=1")
WHOLE = ("steps=1", "prompts_per_step=2", "minibatches=1", "threads=1")
SMALL = {  # settings of a tiny run, by recipe
    **dict.fromkeys(("sac", "td3", "dqn", "rlpd", "expo", "swd", "her"), OFF_POLICY),
    "mbpo": (*OFF_POLICY, "update_to_data=1", "policy.hidden=(8,)"),
    "pets": (*OFF_POLICY, "policy.planner.candidates=4", "policy.planner.horizon=3"),
    **dict.fromkeys(("bc", "td3_bc", "a2pr", "iql", "famo2o", "cql", "fql", "idql"), RECORDED),
    **dict.fromkeys(("synther", "synther_guided"), (*RECORDED, "update.warmup=1")),
    **dict.fromkeys(("cartpole", "pendulum", "demo"), WHOLE),
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("envs.py").write_text(ENVIRONMENTS)


def train(recipe, *words):
    """The exit code of a tiny run; what is given here counts."""
    given = {word.partition("=")[0].rpartition(".")[2] for word in words}
    small = [word for word in SMALL[recipe] if word.partition("=")[0].rpartition(".")[2] not in given]
    held_out = [] if any(word.startswith("held_out") for word in words) else ["held_out=none"]
    return cli.main(["train", recipe, *words, *small, *held_out])


def refused(capsys, recipe, *words):
    """The one sentence that ends it."""
    capsys.readouterr()
    assert train(recipe, *words) == 2
    err = capsys.readouterr().err
    told = [line for line in err.splitlines() if line.startswith("gimbal: ")]
    assert "Traceback" not in err and told, err
    return told[-1]


def rows(name):
    return [json.loads(line) for line in Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()]


def weights(name):
    return load_file(f"runs/{name}/model/model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "key"), [("mbpo", "update.world.ends"), ("pets", "policy.world.ends")])
def test_a_world_whose_episodes_end_says_which_setting_learns_ends(desk, single_thread, capsys, recipe, key):
    line = "tasks.environment=envs.py:Line"
    said = refused(capsys, recipe, line)
    assert "world.ends is never" in said and "start again with world.ends=learned" in said
    for number, typed in enumerate(["world.ends=learned", "ends=learned", f"{key}=learned", "world.ends=envs.py:over"]):
        assert train(recipe, line, typed, "--name", f"ends-{number}") == 0, capsys.readouterr().err
        saved = config.read_file(Path(f"runs/ends-{number}/recipe.yaml"))["run"]
        for part in key.split("."):
            saved = saved[part]
        assert saved == typed.partition("=")[2]
        assert rows(f"ends-{number}")[-1]["world/error"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["mbpo", "pets"])
def test_a_function_of_ends_is_saved_and_resumes(desk, single_thread, capsys, recipe):
    words = ["tasks.environment=envs.py:Line", "world.ends=envs.py:over", "decay=constant"]
    assert train(recipe, *words, "--name", "whole") == 0 and train(recipe, *words, "steps=2", "--name", "part") == 0
    assert "ends: envs.py:over" in Path("runs/part/recipe.yaml").read_text()
    assert cli.main(["train", "--resume", "part", "steps=3"]) == 0, capsys.readouterr().err
    for name, weight in weights("whole").items():
        assert torch.equal(weights("part")[name], weight), name
    assert cli.main(["train", "--from", "whole", "--name", "anew", "steps=1"]) == 0
    capsys.readouterr()
    Path("elsewhere").mkdir()
    shutil.move("envs.py", "elsewhere/envs.py")
    assert cli.main(["train", "--resume", "part", "steps=4"]) == 2
    assert "envs.py" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["world.ends=sometimes", "world.ends=nowhere.py:over", "world.ends=envs.py:ends"])
def test_ends_that_mean_nothing_are_refused_before_a_step(desk, single_thread, capsys, typed):
    said = refused(capsys, "mbpo", "tasks.environment=envs.py:Line", typed)
    assert any(way in said for way in ("never, learned, or a function", "there is no file", "has no ends"))
    assert not list(Path("runs").glob("*/metrics.jsonl"))


@pytest.mark.slow
def test_micro_batches_do_not_change_what_dyna_learns(desk, single_thread, capsys):
    """Of a minibatch of 128 the first quarter is real, the last branches begin in its last quarter: some micro-batches hold neither."""
    words = ["tasks.environment=envs.py:Line", "ends=learned", "store.minibatch=128", "update_to_data=0.5"]
    for name, more in {
        "whole": [],
        "cut": ["microbatch_tokens=32"],
        "path": ["optimization.microbatch_tokens=32"],
    }.items():
        assert train("mbpo", *words, *more, "--name", name) == 0, capsys.readouterr().err
    saved = config.read_file(Path("runs/cut/recipe.yaml"))["run"]
    assert saved["update"]["inside"]["optimization"]["microbatch_tokens"] == 32
    for name, weight in weights("whole").items():
        torch.testing.assert_close(weights("cut")[name], weight, atol=1e-4, rtol=1e-3)
        assert torch.equal(weights("cut")[name], weights("path")[name]), name
    for one, other in zip(rows("whole"), rows("cut"), strict=True):
        told = {"loss", "world/loss", "q/mean", "grad_norm", "imagined/share"} & one.keys()
        assert {key: other[key] for key in told} == pytest.approx({key: one[key] for key in told}, rel=1e-3, abs=1e-4)
    assert rows("whole")[-1]["replay/moves"] > 3 and rows("whole")[-1]["imagined/share"] == pytest.approx(
        0.75, abs=0.02
    )


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (
            ["sac", "tasks=gimbal/pendulum/mixed-v0"],
            "begin with td3_bc, iql, cql or bc and leave engine as it is, or act",
        ),
        (["dqn", "tasks=gimbal/pendulum/mixed-v0"], "td3_bc, iql, cql or bc"),
        (["iql", "engine=Episodes()"], "begin with td3_bc, iql, cql or bc and leave engine as it is, or act"),
        (["bc", "engine=Episodes(slots=2)"], "or act with tasks='Gymnasium("),
    ],
)
def test_recorded_data_and_an_engine_that_acts_are_refused_together(desk, capsys, words, way):
    pytest.importorskip("h5py")
    for flags in ([], ["--dry-run"]):
        assert cli.main(["train", *words, *flags]) == 2
        out, err = capsys.readouterr()
        assert way in err and err.count("\n") == 1 and not out
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


@pytest.mark.slow
def test_an_environment_that_does_not_begin_with_some_tasks_costs_their_episodes_alone(desk, single_thread, capsys):
    line = "tasks.environment=envs.py:Choosy"
    assert Gymnasium(environment="envs.py:Choosy", seed=1)[0].seed % 3 == 2
    assert train("sac", line, "steps=6", "--name", "some") == 0, capsys.readouterr().err
    assert config.read_file(Path("runs/some/recipe.yaml"))["run"]["tasks"]["seed"] == 1
    assert len(rows("some")) == 6 and sum(row.get("drops/rollouts/environment_error", 0) for row in rows("some")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["expo", "rlpd"])
def test_recordings_of_another_environment_are_refused_with_ways_that_work(desk, single_thread, capsys, recipe):
    pytest.importorskip("h5py")
    own = (recipe, "tasks.environment=envs.py:Line")
    said = refused(capsys, *own)
    assert all(way in said for way in ("store.prior=none", "store.prior.dataset=DIRECTORY takes those of envs.py:Line"))
    assert train(*own, "store.prior=none", "--name", "alone") == 0, capsys.readouterr().err
    assert cli.main(["record", "alone", "data", "--episodes", "2"]) == 0
    assert train(*own, "store.prior.dataset=data", "--name", "beside") == 0, capsys.readouterr().err
    assert rows("beside")[-1]["replay/prior"] == 0.5


@pytest.mark.slow
def test_an_environment_that_answers_otherwise_is_left_with_what_its_checkpoint_holds(desk, single_thread, capsys):
    own = ("sac", "tasks.environment=envs.py:Drifting", "engine.segment=2", "learning_starts=2")
    assert train(*own, "--name", "first") == 0
    shutil.rmtree("runs/first/checkpoints/step_000003")  # as if it had been stopped
    for name in ("model", "summary.json"):
        path = Path("runs/first", name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    Path("drift").touch()
    capsys.readouterr()
    assert cli.main(["train", "--resume", "runs/first"]) != 0
    said = capsys.readouterr().err
    assert "does not come back to the same observation" in said and "gimbal export" not in said
    way = "policy.model=runs/RUN/checkpoints/step_NUMBER/model"
    assert way in said
    found = way.replace("RUN", "first").replace("NUMBER", "000002")
    assert train(*own, found, "--name", "second") == 0, capsys.readouterr().err


SAID = {  # by what is wrong with an environment: how a run that it ends says so
    "reward": "step returned the reward nan; it must be a finite number",
    "infinite": "step returned the reward inf; it must be a finite number",
    "nothing": "step returned the reward None; it must be a finite number",
    "seen": "step returned an observation with nan; all its numbers must be finite",
    "shape": "step returned an observation of shape [3]; its observation_space is Box(-10.0, 10.0, (2,), float32)",
    "old": "step returned 4 values; it must return (observation, reward, terminated, truncated, info)",
    "end": "step returned terminated='no'; it must be True or False",
    "words": "step returned the observation 'hello', which is no array of numbers",
    "raises": "raised RuntimeError: out of paint (envs.py, line ",
    "reset": "reset returned a ndarray of shape [2]; it must return (observation, info)",
    "start": "reset returned an observation with nan; all its numbers must be finite",
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["sac", "td3", "dqn", "pets", "mbpo", "cartpole", "pendulum"])
def test_an_environment_that_answers_nonsense_is_named_and_nothing_is_learned_of_it(
    desk, single_thread, capsys, recipe
):
    """A number that is not finite passed for one not known in the n-step returns of DQN, and elsewhere for a learning rate too high."""
    kind = "BrokenChoices" if recipe in ("dqn", "cartpole") else "Broken"
    for fault, sentence in SAID.items():
        said = refused(capsys, recipe, f"tasks.environment=envs.py:{kind}_{fault}")
        assert sentence in said and f"envs.py:{kind}_{fault}" in said, (fault, said)
    assert not list(Path("runs").glob("*/model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["dqn", "tasks.environment=Pendulum-v1"],
            "takes continuous actions, which Greedy does not sample: start from sac",
        ),
        (
            ["sac", "tasks.environment=CartPole-v1"],
            "takes discrete actions, which SquashedGaussian does not sample: start",
        ),
        (
            ["pets", "tasks.environment=CartPole-v1"],
            "takes discrete actions, which Planned does not sample: start from dqn",
        ),
        (
            ["sac", "tasks.environment=cartpole"],
            "`cartpole` doesn't exist; did you mean CartPole-v1? (one of your own is",
        ),
        (["sac", "env=Pendulm-v1"], "`Pendulm` doesn't exist; did you mean Pendulum-v1?"),
        (
            ["sac", "tasks=Pendulum-v1"],
            "Pendulum-v1 is the name of an environment: tasks.environment=Pendulum-v1, in a recipe",
        ),
        (["demo", "tasks=Pendulum-v1"], "in a recipe such as sac, dqn or cartpole"),
        (["td3", "tasks.environment="], "Gymnasium has environment '' and size 1000000; it needs a name"),
        (
            ["td3", "tasks.size=-3"],
            "size -3; it needs a name, such as CartPole-v1 or file.py:Class, and at least 1 episode",
        ),
        (
            ["mbpo", "tasks.environment=envs.py:Lin"],
            "envs.py has no class Lin, and registers no environment of that name; did",
        ),
        (["mbpo", "tasks.environment=envs.py:Bare"], "envs.py:Bare has no observation_space; set it in the class"),
        (
            ["mbpo", "tasks.environment=envs.py:Free"],
            "without a largest one, and SquashedGaussian samples between bounds",
        ),
        (["pets", "tasks.environment=envs.py:Free"], "give its action_space finite ones, or start from pendulum"),
        (
            ["iql", "tasks.environment=Pendulum-v1"],
            "no key tasks.environment; did you mean held_out.tasks.environment?",
        ),
        (["bc", "engine.slots=3"], "no key engine.slots; did you mean held_out.engine.slots?"),
        (["cql", "samples=2"], "held_out.samples sets a field of held_out, and this run has none: add held_out=FILE"),
        (
            ["td3_bc", "tasks=gimbal/pendulum/nothing-v0"],
            "there is no data set gimbal/pendulum/nothing-v0; did you mean",
        ),
        (
            ["iql", "tasks=choices"],
            "takes discrete actions, which Gaussian does not sample: start from bc policy='Categ",
        ),
        (
            ["sac", "policy.hidden=(-8,)"],
            "a network has layers of 3, -8, 2 numbers, from observations to outputs; each",
        ),
        (["td3", "policy.hidden=(0,)"], "each is at least 1: set hidden, observations and actions above 0"),
        (["dqn", "policy.observations=-1"], "a network has layers of -1 numbers"),
        (["sac", "update.critic.hidden=(-3,)"], "a network has layers of 4, -3, 1 numbers"),
        (["iql", "policy.hidden=(0,)"], "a network has layers of 3, 0, 1 numbers"),
        (["pets", "world.hidden=(0,)"], "a network has layers of 4, 0, 8 numbers"),
        (["mbpo", "world.hidden=(-1,)"], "a network has layers of 4, -1, 8 numbers"),
        (
            ["mbpo", "update.world.observations=9"],
            "the world model reads 10 numbers, but observation and action have 4: set",
        ),
        (
            ["pendulum", "log_std=100"],
            "policy.log_std is 100; it is the logarithm of the initial standard deviation, from",
        ),
        (
            ["her", "env=Pendulum-v1"],
            "Pendulum-v1 has no goals: its observations must be a Dict of observation, achieved_goal",
        ),
        (["her", "engine.segment=5"], "engine.segment cuts rows of 5 steps out of it: set engine.segment=0"),
        (["her", "store.n=2"], "Transitions.n is 2, which adds up rewards of steps that were paid for another goal"),
        (["her", "hindsight.goals=-1"], "Hindsight.goals is -1; it is how many steps are drawn with another goal"),
        (["her", "strategy=past"], "strategy"),
        (
            ["dqn", "env=envs.py:Paid", "store.hindsight=Hindsight()", "n=1", "segment=0"],
            "envs.py:Paid.step paid 32 of 32 steps otherwise than its compute_reward says",
        ),
        (["sac", "gamma=2"], "SoftActorCritic.gamma is 2.0; it must be in [0, 1]"),
        (["dqn", "store.update_to_data=-1"], "Transitions.update_to_data is -1.0; it is how often the weights move"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_newcomers_mistake_is_one_sentence(desk, single_thread, capsys, words, sentence):
    if words[-1] == "tasks=choices":
        pytest.importorskip("h5py")
        assert train("cartpole", "tasks.environment=envs.py:Choices", "--name", "choosing") == 0
        assert cli.main(["record", "choosing", "choices", "--episodes", "2"]) == 0
    assert sentence in refused(capsys, *words)


@pytest.mark.slow
def test_bounds_that_the_user_gives_are_taken_where_the_environment_has_none(desk, single_thread, capsys):
    words = ["tasks.environment=envs.py:Free", "policy.bound=1", "update.critic.bound=1"]
    assert train("sac", *words) == 0, capsys.readouterr().err
    assert train("pendulum", "tasks.environment=envs.py:Free") == 0, capsys.readouterr().err


@pytest.mark.slow
def test_hindsight_in_an_environment_of_ones_own(desk, single_thread, capsys):
    # A rate that decays goes by the run's steps, which the second run changes.
    own = (
        "dqn",
        "env=envs.py:Bits",
        "store.hindsight=Hindsight(strategy='final')",
        "store.n=1",
        "engine.segment=0",
        "decay=constant",
    )
    held_out = "held_out=HeldOut(tasks=Gymnasium(environment='envs.py:Bits', size=3), engine=Episodes())"
    assert train(*own, held_out, "--name", "whole") == 0, capsys.readouterr().err
    assert rows("whole")[-1]["replay/relabelled"] > 0 and 0 <= rows("whole")[-1]["reward/success/mean"] < 1
    assert "eval/greedy_success" in json.loads(Path("runs/whole/summary.json").read_text())["after"]
    assert train(*own, "steps=2", "--name", "part") == 0
    assert cli.main(["train", "--resume", "part", "steps=3"]) == 0, capsys.readouterr().err
    for name, weight in weights("part").items():
        assert torch.equal(weights("whole")[name], weight), name


def test_sets_of_another_size_want_rows_of_that_size(desk, capsys):
    Path("shops.py").write_text(
        "import gymnasium, numpy as np\n\nclass Shops(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(0, 1, (6,))\n"
    )
    assert cli.main(["train", "sequoia", "env=shops.py:Shops", "--dry-run"]) == 2
    assert "set policy.rows to rows of 6 numbers" in capsys.readouterr().err
    words = ["train", "sequoia", "env=shops.py:Shops", "policy.rows=((1,1,1,3,3,3),)", "policy.limits=(4,)"]
    assert cli.main([*words, "--print-config"]) == 0, capsys.readouterr().err
    policy = yaml.safe_load(capsys.readouterr().out)["run"]["policy"]
    assert (policy["actions"], policy["observations"]) == (6, 2)


@pytest.mark.parametrize("key", ["tasks.environment", "environment", "env", "env_id"])
def test_an_environment_by_any_of_its_names_is_trained_and_evaluated_in(desk, capsys, key):
    words = ["train", "mbpo", f"{key}=MountainCarContinuous-v0", "--print-config"]
    assert cli.main(words) == 0
    saved = yaml.safe_load(capsys.readouterr().out)["run"]
    assert saved["tasks"]["environment"] == saved["held_out"]["tasks"]["environment"] == "MountainCarContinuous-v0"
    assert saved["update"]["world"]["observations"] == 2 and saved["policy"]["bound"] == 1


@pytest.mark.parametrize("recipe", ["demo", "iql"])
def test_recipes_without_an_environment_say_so(desk, capsys, recipe):
    assert "acts in no environment; start from sac" in refused(capsys, recipe, "env=Pendulum-v1")


def test_a_module_s_environment_needs_no_version(desk, capsys):
    Path("registers.py").write_text("import gymnasium\ngymnasium.register('Mine-v0', entry_point='envs:Line')\n")
    for name in ("registers:Mine", "registers:Mine-v0"):
        assert cli.main(["train", "sac", f"env={name}", "--print-config"]) == 0, capsys.readouterr().err
    assert "registers no environment of that name" in refused(capsys, "sac", "env=registers:Min")


@pytest.mark.parametrize(("recipe", "at"), [("dqn", "update"), ("mbpo", "update.inside"), ("cartpole", "")])
def test_names_of_other_libraries_lead_into_the_update(desk, capsys, recipe, at):
    assert cli.main(["train", recipe, "lr=0.5", "--print-config"]) == 0
    out, err = capsys.readouterr()
    path = f"{at}.optimization.learning_rate".strip(".")
    held = yaml.safe_load(out)["run"]
    for part in path.split("."):
        held = held[part]
    assert held == 0.5 and f"lr=0.5 is read as {path}=0.5" in err


@pytest.mark.slow
@pytest.mark.parametrize("left", ["{", "[1]", ""])
def test_a_damaged_configuration_of_the_newest_checkpoint_is_passed_over(desk, single_thread, capsys, left):
    words = ["train", "sac", "tasks.environment=envs.py:Line", "held_out=none", *OFF_POLICY]
    assert cli.main([*words, "--name", "whole"]) == 0, capsys.readouterr().err
    shutil.copytree("runs/whole", "runs/broken")
    newest = max(Path("runs/broken/checkpoints").glob("step_*"))
    (newest / "model" / "config.json").write_text(left)
    capsys.readouterr()
    assert cli.main(["train", "--resume", "broken", "steps=4"]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "step_000002 is used instead" in said.out + said.err
