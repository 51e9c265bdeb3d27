"""Every recipe: found by name, saved and read back equal, explained; files that name a recipe."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from gimbal import api, recipes
from gimbal.config import Text, dump, flatten, load, paths
from gimbal.config.overrides import reachable
from gimbal.controllers import Fallback, Region, Stability
from gimbal.environments.dataset import Rows
from gimbal.environments.minari import Minari
from gimbal.learning.separate import SeparateWeights
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.objectives import ExactKL
from gimbal.policies.one_step import OneStep
from gimbal.policies.token import CausalLM
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime import compose
from gimbal.runtime.run import AbstractRun
from gimbal.workflows.pruning import Pruning
from gimbal.workflows.quality import QualityHead

TOY = str(Path(__file__).parent.parent / "cli" / "toy_recipe.py") + ":toy"


@pytest.mark.parametrize("name", [*recipes.names(), TOY])
def test_a_recipe_survives_being_saved(name, tmp_path):
    run = recipes.load(name)
    (tmp_path / "recipe.yaml").write_text(dump(run, name))
    assert load(tmp_path, AbstractRun) == (name, run)


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_is_sound_and_says_what_it_is(name):
    run = recipes.load(name)
    compose.check(run)
    assert recipes.names()[name].endswith(".")
    assert f"{run.steps:,} step" in api.statement(run)
    assert all(reachable(run, path) for path in paths(run))


def test_a_file_names_a_recipe_and_its_overrides(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"recipe: {TOY}\nlearning_rate: 1e-4\nobjective:\n  clip_high: 0.5\nregularisers: [{{class: KLPenalty}}]\n"
    )
    run = recipes.load(str(file), {"steps": 3})
    assert (run.optimization.learning_rate, run.objective.clip_high, run.steps) == (1e-4, 0.5, 3)
    assert run.regularisers[0].coef == 0.04
    other = tmp_path / "mine.json"
    other.write_text(json.dumps({"recipe": TOY, "objective.clip_high": 0.5}))
    assert recipes.load(str(other)).objective.clip_high == 0.5


def test_a_file_knows_rewards_and_tasks_by_their_files(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"recipe: {TOY}\nreward: {TOY.replace(':toy', ':reward')}\ntasks: {tmp_path / 't.jsonl'}\n")
    (tmp_path / "t.jsonl").write_text('{"prompt": "1+1="}\n')
    run = recipes.load(str(file))
    assert run.rewards[0].name == "reward" and run.tasks[0].prompt == "1+1=" and run.held_out is None


@pytest.mark.parametrize("recipe", [TOY, str(Path(__file__).parent.parent / "users" / "parts.py") + ":recipe"])
def test_an_exam_of_ones_own_in_every_form(recipe, tmp_path):
    """On recipes that have one, and that have none."""
    own = tmp_path / "t.jsonl"
    own.write_text('{"prompt": "1+1="}\n')
    rows = [{"prompt": "1+1="}]
    typed = {
        "held_out": (str(own), f"HeldOut(tasks='{own}')", f"HeldOut(tasks=Dataset(path='{own}'), samples=4)"),
        "held_out.tasks": (str(own), f"Dataset(path='{own}')"),
    }
    given = [{key: Text(value)} for key, values in typed.items() for value in values]
    given += [{"held_out": rows}, {"held_out": {"tasks": rows}}, {"held_out__tasks": rows}, {"held_out": own}]
    given += [{"held_out": {"tasks": str(own), "samples": 4}}, {"held_out": Rows(rows=rows)}]
    for changes in given:
        exam = recipes.load(recipe, flatten(changes)).held_out
        assert (exam.tasks[0].prompt, exam.samples) == ("1+1=", 4), changes
    yaml = tmp_path / "mine.yaml"
    for text in (f"held_out: {own}\n", f"held_out:\n  tasks: {own}\n", "held_out:\n  tasks:\n  - prompt: 1+1=\n"):
        yaml.write_text(f"recipe: {recipe}\n{text}")
        assert recipes.load(str(yaml)).held_out.tasks[0].prompt == "1+1="
    with pytest.raises(ValueError, match=r"HeldOut needs tasks; write HeldOut\(tasks=\.\.\.\)"):
        recipes.load(recipe, {"held_out": Text("HeldOut()")})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("temperature=1e-300", "temperature is 1e-300; it must be 0"),
        ("temperature=inf", "temperature is inf"),
        ("engine.slots=1000000000", "between 1 and 65,536"),
        (
            "max_staleness=1000000000",
            r"1.28e\+11 rollouts in flight or waiting at once.*in 40 steps nothing gets older than 39",
        ),
        ("steps=" + "9" * 400, "steps is "),
        ("optimization.learning_rate=" + "9" * 400, "learning_rate is "),
        ("objective=" + "(" * 5000, "cannot be read"),
        (
            "objective.dual_clip=1e300",
            r"objective.dual_clip is 1e300; it must be a number",
        ),  # float32 has none, inf it has
        ("optimization.beta2=1", r"beta2 is 1\.0; it must be in \[0, 1\)"),
        ("optimization.max_grad_norm=-1", "it must be 0 or above"),
        ("threads=1000000", "1024 or below"),
        ("tasks.parameters=TokenMean()", "tasks.parameters is"),
        ("tasks.parameters=" + "-" * 100_000 + "1", "cannot be read"),
    ],
)
def test_values_beyond_all_bounds(change, sentence):
    key, _, value = change.partition("=")
    with pytest.raises(ValueError, match=sentence):
        recipes.load("grpo", {key: Text(value)})


def test_policy_and_critic_have_the_sizes_of_the_environment():
    pytest.importorskip("gymnasium")
    run = recipes.load("cartpole", {"tasks.environment": Text("Acrobot-v1")})
    assert (run.policy.observations, run.policy.actions, run.critic.observations) == (6, 3, 6)
    assert run.held_out.tasks.environment == "Acrobot-v1" and run.tasks.seed != run.held_out.tasks.seed
    run = recipes.load(
        "pendulum", {"tasks.environment": Text("MountainCarContinuous-v0"), "critic.observations": Text("9")}
    )
    assert (run.policy.observations, run.policy.actions, run.critic.observations) == (2, 1, 9)  # what is given stays
    with pytest.raises(ValueError, match="no_module_of_mine"):
        recipes.load("cartpole", {"tasks.environment": Text("no_module_of_mine:Env-v0")})


def test_questions_of_another_exam_are_left_out_of_training_too():
    run = recipes.load("grpo", {"held_out.tasks.seed": Text("7"), "held_out.tasks.size": Text("32")})
    assert run.tasks.exclude == run.held_out.tasks and run.tasks.exclude.seed == 7
    assert recipes.load("grpo", {"held_out.samples": Text("2")}).tasks == recipes.load("grpo").tasks


def test_the_same_thing_under_two_names_is_refused():
    with pytest.raises(ValueError, match="give only one of them"):
        recipes.load(TOY, {"reward": Text("a.py:f"), "rewards": Text("ExactAnswer()")})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("steps: 3\n", "names no recipe"),
        ("- 1\n", "holds no keys and values"),
        ("a: [\n", "not readable as yaml"),
        (f"recipe: {TOY}\nstep: 3\n", "did you mean steps"),
        (f"recipe: {TOY}\nsteps: 3\nsteps: 4\n", "steps is given twice"),
        ("recipe: bad.yaml\n", "refers to itself"),
        (f"recipe: {TOY}\n[1, 2]: 3\n", "a key is a word"),
        (f"recipe: {TOY}\n{{a: 1}}: 3\n", "a key is a word"),
        (f"recipe: {TOY}\nsteps: " + "[" * 5000 + "]" * 5000 + "\n", "nested too deeply"),
        (f"recipe: {TOY}\nsteps: 2020-13-45\n", "not readable as yaml: month must be"),
    ],
)
def test_files_that_are_not_recipes(tmp_path, monkeypatch, text, sentence):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        recipes.load("bad.yaml")


def test_unknown_recipes_and_things_that_are_no_recipes():
    with pytest.raises(ValueError, match=r"no recipe demoo; did you mean demo\?"):
        recipes.load("demoo")
    with pytest.raises(ValueError, match=r"must return a gimbal\.Run"):
        recipes.load("builtins:dict")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def mine(:\n", r"raises SyntaxError: [^()]* \(own.py, line 1\)$"),
        ("1 / 0\n", r"raises ZeroDivisionError: .* \(own.py, line 1\)"),
        ("\ndef mine():\n    return {}['x']\n", r"own.py:mine raises KeyError: 'x' \(own.py, line 3\)"),
        ("def mine():\n    return int('x')\n", r"raises ValueError: invalid literal .* \(own.py, line 2\)"),
        ("def mine(seed):\n    pass\n", "raises TypeError: .*'seed'$"),
        ("def mine():\n    return 5\n", "own.py:mine returned 5; it must return a gimbal.Run"),
        ("from gimbal import Sampling\ndef mine():\n    Sampling(max_length=0)\n", "^max_length is 0"),
    ],
)
def test_a_recipe_of_ones_own_that_breaks_says_where(tmp_path, source, sentence):
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(ValueError, match=sentence):
        recipes.load(f"{tmp_path / 'own.py'}:mine")


def test_a_file_without_its_function_is_told_how_it_is_written():
    with pytest.raises(ValueError, match=r"path/file\.py:function"):
        recipes.load("mine.py")
    with pytest.raises(ValueError, match=r"'mine\.py:' is not a reference; write pkg"):
        recipes.load("mine.py:")


def test_a_critic_on_hidden_states_is_as_wide_as_the_policy(tmp_path):
    """It would fail in the first step; a width of the user's own that is wrong is refused before."""
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    for words in ({}, {"critic": Text("HiddenValue(hidden=(8,))")}):
        assert recipes.load("ppo", {"model": Text(str(tmp_path)), **words}).critic.width == 64
    with pytest.raises(ValueError, match=r"have 64 numbers, and HiddenValue\.width is 128: .*critic\.width=64"):
        recipes.load("ppo", {"model": Text(str(tmp_path)), "critic.width": Text("128")})
    (tmp_path / "config.json").write_text('{"text_config": {"hidden_size": 32}}')
    assert recipes.load("ppo", {"model": Text(str(tmp_path))}).critic.width == 32
    assert recipes.load("ppo").critic.width == recipes.load("ppo", {"model": Text("some/name")}).critic.width == 128


def test_a_field_of_the_evaluation_does_not_bring_the_recipes_own_tasks_back():
    """Beside tasks of the user's it would measure something else, without a word."""
    rows = {"tasks": [{"prompt": "1 + 1 ="}]}
    with pytest.raises(
        ValueError, match=r"held_out\.every belongs to the recipe's evaluation, .* add held_out\.tasks=FILE\.jsonl"
    ):
        recipes.load("grpo", {**rows, "held_out.every": Text("1")})
    told = []
    assert recipes.load("grpo", rows, told.append).held_out is None and "no held-out evaluation" in told[0]
    exam = recipes.load("grpo", {**rows, "held_out.every": Text("1"), "held_out.tasks": Text("mine.jsonl")}).held_out
    assert (exam.every, exam.tasks.path) == (1, "mine.jsonl")


def test_the_closed_loop_and_an_exact_divergence_as_they_are_typed():
    typed = {"stability": "Stability(slice=8)", "stability.fallback": "Fallback(most=1)", "stability.region.kl": ".02"}
    typed |= {"regularisers": "(ExactKL(coef=.01),)", "stability.region.discrepancy": "inf"}
    run = recipes.load("grpo", {key: Text(value) for key, value in typed.items()})
    assert run.stability == Stability(slice=8, region=Region(kl=0.02, discrepancy=math.inf), fallback=Fallback(most=1))
    assert run.regularisers == (ExactKL(coef=0.01),)
    assert recipes.load("stable", {"stability": Text("none")}).stability is None


def test_an_evaluation_of_a_run_on_written_answers_draws_its_own(tmp_path, monkeypatch):
    """It would ask held-out rows for written answers otherwise; where they have some, it is a loss."""
    monkeypatch.chdir(tmp_path)
    Path("test.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    Path("written.jsonl").write_text('{"prompt": "1+1=", "chosen": "2", "rejected": "3"}\n')
    data = {"tasks": Text("pairs.jsonl"), "held_out": Text("test.jsonl"), "held_out.rewards": Text("ExactAnswer()")}
    exam = recipes.load("dpo", data).held_out
    recipe = recipes.load("dpo").held_out
    assert (exam.engine, exam.workflow, exam.tasks.path) == (recipe.engine, recipe.workflow, "test.jsonl")
    for name in ("dpo", "sft"):
        with pytest.raises(ValueError, match=r"no reward can score them: give held_out\.rewards="):
            recipes.load(name, {key: value for key, value in data.items() if key != "held_out.rewards"})
    written = recipes.load("dpo", {"tasks": Text("pairs.jsonl"), "held_out": Text("written.jsonl")})
    assert written.held_out.workflow == written.workflow and written.held_out.engine == written.engine


SCALES = (
    {},
    {"policy.scale": "7"},
    {"environment": "Acrobot-v1"},
    {"environment": "Acrobot-v1", "policy.scale": "7"},
)


def test_roles_references_admission_and_noise_as_they_are_typed():
    typed = {"workflow": "PlanAndExecute()", "separate": '{"executor": SeparateWeights(learning_rate=1e-5)}'}
    typed |= {"max_staleness": "16", "staleness.admission": "4"}
    run = recipes.load("grpo", {key: Text(value) for key, value in typed.items()})
    assert run.separate == {"executor": SeparateWeights(learning_rate=1e-5)} and run.staleness.admission == 4
    run = recipes.load("rema", {"separate.executor.learning_rate": Text("2e-5")})
    assert run.separate == {"executor": SeparateWeights(learning_rate=2e-5)}
    assert recipes.load("grpo", {"beta": Text(".05"), "reference_rate": Text(".01")}).reference_rate == 0.01
    assert recipes.load("sac", {"engine.correlation": Text("0.9")}).engine.correlation == 0.9
    typed = {"workflow": "Pruning(at=4)", "workflow.head.bins": "16", "workflow.reward": "ReasoningScore()"}
    found = recipes.load("grpo", {key: Text(value) for key, value in typed.items()} | {"held_out": None}).workflow
    assert found == Pruning(at=4, head=QualityHead(bins=16), reward=ReasoningScore())
    typed = {"store.prior": 'Minari(dataset="gimbal/pendulum/expert-v0")', "store.share": "none"}
    store = recipes.load("sac", {key: Text(value) for key, value in typed.items()}).store
    assert store.prior == Minari(dataset="gimbal/pendulum/expert-v0") and store.share is None
    typed = {
        "update.subset": "3",
        "update.critic.layer_norm": "false",
        "update.critic.members": "5",
        "store.share": ".25",
    }
    run = recipes.load("rlpd", {key: Text(value) for key, value in typed.items()})
    assert (run.update.subset, run.update.critic.layer_norm, run.store.share) == (3, False, 0.25)
    typed = {
        "policy": "OneStep(observations=3,actions=1,bound=2)",
        "update": "FlowQ(critic=ActionValues(observations=3,actions=1,bound=2))",
    }
    run = recipes.load("sac", {key: Text(value) for key, value in (typed | {"update.alpha": "3"}).items()})
    assert run.policy == OneStep(observations=3, actions=1, bound=2.0) and run.update.alpha == 3
    found = [recipes.load("dqn", {key: Text(value) for key, value in typed.items()}).policy.scale for typed in SCALES]
    assert found == [30, 7, 1, 7], "the recipe's is of CartPole's returns"
    run = recipes.load("fisor", {"update.violation": Text("25"), "update.safe_expectile": Text(".8")})
    assert (run.update.violation, run.update.safe_expectile) == (25, 0.8)
    assert recipes.load("draft", {"update.steps.count": Text("10")}).update.steps == GradientSteps(count=10)


def test_an_evaluation_with_a_workflow_of_its_own_follows_the_runs():
    plain = recipes.load("agentfly").held_out.workflow
    held = {
        "": {"workflow.read": Text("1"), "workflow.retrieval": Text("CosineRetrieval()")},
        "held_out.workflow.read": {"workflow.read": Text("1"), "held_out.workflow.read": Text("3")},
    }
    both, own = (recipes.load("agentfly", changes).held_out.workflow for changes in held.values())
    assert (
        both == replace(plain, read=1, retrieval=both.retrieval) and type(both.retrieval).__name__ == "CosineRetrieval"
    )
    assert own == replace(plain, read=3), "what is set there stays"


def test_an_evaluation_with_an_engine_of_its_own_has_environments_in_processes_where_the_run_has():
    plain = recipes.load("sac").held_out.engine
    held = [
        recipes.load("sac", {key: Text(value) for key, value in typed.items()}).held_out.engine
        for typed in (
            {"engine.apart": "true", "engine.slots": "4"},
            {"engine": "Episodes(apart=true)"},
            {"engine.apart": "true", "held_out.engine.apart": "false"},
            {"held_out.engine.apart": "true"},
        )
    ]
    apart = replace(plain, apart=True)
    assert held == [apart, apart, plain, apart], "its slots are its own"


def test_a_short_name_that_a_reference_has_too_is_the_policys():
    run = recipes.load("opd", {"lora": Text("LoRA(rank=4)")})
    assert run.policy.lora.rank == 4 and run.reference.lora is None


def test_a_model_is_named_without_its_class():
    assert recipes.load("opd", {"reference": Text("teachr")}).reference == CausalLM(model="teachr"), (
        "its files are asked later"
    )
    with pytest.raises(ValueError, match=r"gimbal has no part called Causallm; did you mean CausalLM"):
        recipes.load("opd", {"reference": Text("Causallm()")})


def test_sizes_of_an_environment_go_to_every_part_that_has_them(tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass, replace\nfrom gimbal.policies.squashed import SquashedGaussian\n"
        "from gimbal.recipes.papers.control.sac import sac\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(SquashedGaussian):\n    own: float = 0.5\n\n\n"
        "def mine():\n    return replace(sac(), policy=Mine(observations=3, actions=1, bound=2.0))\n"
    )
    world = {"tasks.environment": Text("MountainCarContinuous-v0")}
    run = recipes.load(f"{tmp_path / 'mine.py'}:mine", world)
    critic = run.update.critic
    assert (run.policy.observations, run.policy.bound, critic.observations, critic.bound) == (2, 1.0, 2, 1.0)
    ranked = recipes.load("rad_2", world)
    assert (ranked.policy.observations, ranked.policy.actions) == (2, 1)
    for name, other in (
        ("rad_2", "Acrobot-v1"),
        ("routing_replay", "MountainCarContinuous-v0"),
        ("dqn", "Pendulum-v1"),
    ):
        with pytest.raises(ValueError, match=r"actions, which .* does not sample: start from"):
            recipes.load(name, {"tasks.environment": Text(other)})


PACKAGES = ("AgentDojo", "Bfcl", "Verifiers", "MiniGrid", "TextWorld", "TextArena")


@pytest.mark.parametrize("name", PACKAGES)
def test_tasks_that_one_environment_solves_bring_it_along(name):
    """One word changes the environment of a recipe: what they differ in is that, and the evaluation on its own tasks is gone."""
    word = {"tasks": f"{name}Tasks(environment='mine')" if name == "Verifiers" else f"{name}Tasks()"}
    said: list[str] = []
    before, now = recipes.load("terminal"), recipes.load("terminal", word, said.append)
    assert type(now.workflow.tool).__name__ == name and any(f"solved in {name}()" in line for line in said)
    assert replace(now, tasks=before.tasks, workflow=before.workflow, held_out=before.held_out) == before
    assert replace(now.workflow, tool=before.workflow.tool) == before.workflow
    inside = recipes.load("terminal", word | {"workflow": "Branching(inside=Dialogue(tool=Terminal()))"})
    assert type(inside.workflow.inside.tool).__name__ == "Terminal"  # what the user sets stays
    kept = recipes.load("terminal", word | {"workflow.tool": "Calculator()"})
    assert type(kept.workflow.tool).__name__ == "Calculator"
    assert recipes.load("terminal", {"tasks": "Chores()"}).workflow == before.workflow


def test_rows_within_tasks_are_tasks_of_ones_own_too(tmp_path):
    """seg_atp with a user's proofs was evaluated on the recipe's theorems, without a word."""
    (tmp_path / "proofs.jsonl").write_text('{"prompt": "? p -> p", "states": ["? p -> p"], "tactics": ["intro a"]}\n')
    told: list[str] = []
    run = recipes.load("seg_atp", {"tasks.tasks": str(tmp_path / "proofs.jsonl")}, told.append)
    assert run.held_out is None and "no held-out evaluation" in told[0]
