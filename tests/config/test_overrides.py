"""Dotted overrides reach every field with its type, and nothing else."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from gimbal import ops, recipes
from gimbal.config import Text, find, flatten, override, paths, plain, read
from gimbal.config.aliases import ALIASES, BOTH_CLIPS, EXPLAINED, PARTS
from gimbal.config.overrides import locate
from gimbal.controllers import AdaptiveKL, Lagrangian
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.objectives import ClippedRatio, EntropyBonus, KLPenalty, Reinforce, SequenceRatio, TruncatedWeight
from gimbal.policies.token import Sampling
from gimbal.runtime.run import LEAST

TOY = str(Path(__file__).parent.parent / "cli" / "toy_recipe.py") + ":toy"


@pytest.fixture(scope="module")
def run():
    return recipes.load(TOY)


def typed(run, *words, notice=lambda sentence: None):
    return override(run, {key: Text(value) for key, _, value in (word.partition("=") for word in words)}, notice)


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("objective.clip_high=0.3", "objective.clip_high", 0.3),
        ("clip_high=0.3", "objective.clip_high", 0.3),
        ("steps=1e3", "steps", 1000),
        ("seed=9007199254740993", "seed", 9007199254740993),
        ("learning_rate=1e-3", "optimization.learning_rate", 1e-3),
        ("optimization.checkpointing=true", "optimization.checkpointing", True),
        ("ahead=full", "ahead", "full"),
        ("dual_clip=inf", "objective.dual_clip", math.inf),
        ("rewards.0.weight=0.5", "rewards.0.weight", 0.5),
        ("tasks.parameters.max_terms=4", "tasks.parameters.max_terms", 4),
        ("tasks.parameters.new=(1, 2)", "tasks.parameters.new", [1, 2]),
        ("tasks.parameters.new=word", "tasks.parameters.new", "word"),
        ("stop=-END", "sampling.stop", ("-END",)),
        ("sampling.stop=['a', 'b,c']", "sampling.stop", ("a", "b,c")),
        ("model=/some/where", "policy.model", "/some/where"),
        ("temperature=0.5", "sampling.temperature", 0.5),
        ("correction=None", "correction", None),
        ("aggregation=SequenceMean", "aggregation", ops.SequenceMean()),
        ("objective=SequenceRatio(clip_low=3e-3)", "objective", SequenceRatio(clip_low=3e-3)),
        ("regularisers.0=KLPenalty(coef=1)", "regularisers.0", KLPenalty(coef=1.0)),
        ("regularisers=(KLPenalty(), KLPenalty(coef=-2))", "regularisers.1.coef", -2.0),
        ("sampling=Sampling(top_p=0.5)", "sampling", Sampling(top_p=0.5)),
    ],
)
def test_reaches_fields_with_their_type(run, word, path, value):
    reached = paths(typed(run, word))[path]
    assert reached == value
    assert type(reached) is type(value)


def test_leaves_everything_else_alone(run):
    assert typed(run, "objective.clip_high=0.3") == replace(run, objective=ClippedRatio(clip_low=0.2, clip_high=0.3))


def test_fields_of_a_part_that_is_put_in_at_the_same_time(run):
    changed = typed(run, "objective.clip_low=1e-3", "objective=SequenceRatio()")
    assert changed.objective == SequenceRatio(clip_low=1e-3)
    without = typed(run, "correction=None")
    assert typed(without, "correction.cap=3", "correction=TruncatedWeight()").correction == TruncatedWeight(cap=3.0)


def test_keys_of_controllers_hold_dots(run):
    changed = typed(run, "controllers.objective.clip_high=AdaptiveKL(target=0.2)")
    assert changed.controllers == {"objective.clip_high": AdaptiveKL(target=0.2)}
    again = typed(changed, "controllers.objective.clip_high.target=0.3", "controllers.correction.cap=Lagrangian()")
    assert again.controllers == {"objective.clip_high": AdaptiveKL(target=0.3), "correction.cap": Lagrangian()}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["objective.clip_hihg=1"], r"objective\.clip_hihg; did you mean objective\.clip_high\?"),
        (["clip_hihg=1"], r"did you mean objective\.clip_high\?"),
        (["objektive.clip_high=1"], r"did you mean objective\.clip_high\?"),
        (["learn_rate=1"], r"did you mean optimization\.learning_rate\?"),
        (["xyzzy=1"], r"there is no key xyzzy"),
        (["rewards.1.weight=1"], r"did you mean rewards\.0\.weight\?"),
        (["rewards.2=ExactAnswer()"], r"there is no key rewards\.2"),
        (["regularisers.0.coef=1"], r"there is no key regularisers\.0\.coef"),
        (["critic.lr=1"], r"critic is None in this recipe"),
        (["eps=1"], r"advantage\.eps, filters\.0\.eps"),
        (["steps=abc"], r"steps is abc; it must be a whole number, such as 8$"),
        (["steps=1.5"], r"steps is 1.5; it must be a whole number"),
        (["steps="], r"steps is ''; it must be a whole number"),
        (["optimization.checkpointing=2"], r"it must be true or false"),
        (["ahead=later"], r"ahead is later; it must be one of ready, full"),
        (["objective=None"], r"objective is None; it must be an objective, such as objective='ClippedRatio\(\)'"),
        (
            ["objective=TruncatedWeight()"],
            r"objective is TruncatedWeight \(a correction\); it must be an objective",
        ),
        (["tasks.parameters=5"], r"a mapping: set an entry with tasks.parameters.NAME=VALUE"),
        (["tasks=rows"], r"tasks=rows; did you mean Rows\?; it must be a data file \(rows.jsonl\)"),
        (
            ["held_out=5"],
            r"held_out is 5; it must be a share or a number of the tasks \(held_out=0.1, held_out=200\), a split",
        ),
        (["rewards=score"], r"rewards=score; .*it must be a function \(reward=mine.py:score\), several with weights"),
        (["rewards=mine.py"], r"rewards=mine.py.*; it must be a function \(reward=mine.py:score\)"),
        (["rewards=a:f,b:g*c"], r"rewards.1=b:g\*c cannot be read; it must be a function \(reward=mine.py:score\)"),
        (["controllers=5"], r"controllers is 5; it must be a mapping"),
        (
            ["budget=Allocated()"],
            r"budget is Allocated \(a curriculum\); it must be one of Deepened, Fixed, ",
        ),
        (["budget=Banded()"], r"budget is Banded \(a curriculum\); it must be one of Deepened, Fixed, "),
        (
            ["policy=MaskedLM()", "policy.lora=LoRA()"],
            r"no key policy\.lora, since MaskedLM has no lora: leave it out$",
        ),
        (
            ["engine=VLLM()", "engine.drafter=PromptLookup()"],
            r"VLLM has no drafter, but Native has: engine='Native\(drafter=\.\.\.\)'",
        ),
        (["workflow=Dialogue(tool=5)"], r"workflow.tool is 5; it must be one of AgentDojo, Bfcl, Calculator, "),
        (["staleness=5"], r"staleness is 5; it must be one of DropStale, "),
        (["objective=ClipedRatio()"], r"did you mean ClippedRatio\?"),
        (["objective=ClippedRatio(clip=1)"], r"ClippedRatio has no field clip"),
        (["objective=ClippedRatio(0.1)"], r"takes its fields by name"),
        (["objective=ClippedRatio(clip_low='x')"], r"objective\.clip_low is 'x'; it must be a number, such as 0.5"),
        (["objective=ClippedRatio("], r"cannot be read"),
        (["held_out=HeldOut()"], r"HeldOut needs tasks"),
        (["epsilon_high=1", "clip_high=2"], r"epsilon_high and clip_high both set objective\.clip_high"),
        (["objective=Reinforce()", "objective.clip_high=1"], r"there is no key objective\.clip_high"),
        (["ppo_mini_batch_size=4"], r"optimization\.minibatches"),
        (["top_p=2"], r"top_p is 2.0"),
        (["learning_rate=nan"], r"learning_rate is nan; it must be a number, such as 0.5"),
        *(
            ([f"{name}={least - 1}"], f"{name} is {least - 1}; it must be {least} or above")
            for name, least in LEAST.items()
        ),
    ],
)
def test_refuses_with_a_way_out(run, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        typed(run, *words)


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getcwd()", "(lambda: 3)()", "[x for x in ()]", "ClippedRatio(**{})", "KLPenalty(*[])", "f''"],
)
def test_expressions_are_parsed_and_never_evaluated(run, text):
    with pytest.raises(ValueError, match=r"only literals and constructors|cannot be read"):
        typed(run, f"objective={text}")


def test_names_of_other_systems_are_read_as_ours_with_a_notice(run):
    said: list[str] = []
    changed = typed(run, "rollout.n=4", "max_completion_length=9", "steps=3", notice=said.append)
    assert (changed.num_generations, changed.sampling.max_length, changed.steps) == (4, 9, 3)
    assert said == [
        "rollout.n=4 is read as num_generations=4",
        "max_completion_length=9 is read as sampling.max_length=9",
    ]


def test_epsilon_is_both_clips_and_never_that_of_adam(run):
    for words in (["epsilon=0.1", "epsilon_high=0.4"], ["epsilon_high=0.4", "epsilon=0.1"]):
        changed = typed(run, *words)
        assert changed.objective == ClippedRatio(clip_low=0.1, clip_high=0.4)
        assert changed.optimization.epsilon == run.optimization.epsilon


def test_beta_sets_the_kl_penalty_or_adds_it(run):
    added = typed(run, "beta=0.04")
    assert added.regularisers == (KLPenalty(coef=0.04),)
    assert typed(added, "kl_coef=0.1").regularisers == (KLPenalty(coef=0.1),)


def test_yaml_words_are_read_inside_of_a_part_too(run):
    changed = typed(run, "engine=Native(entropy=true, device='')", "objective=ClippedRatio(dual_clip=inf)")
    assert changed.engine.entropy is True and typed(changed, "engine=Native(entropy=false)").engine.entropy is False


def test_beta_of_a_loss_that_has_one_is_that_one():
    run = recipes.load("dpo", {"beta": Text("0.3")})
    assert run.objective.beta == 0.3 and run.regularisers == ()
    both = recipes.load("dpo", {"beta": Text("0.3"), "kl_coef": Text("0.1")})
    assert both.objective.beta == 0.3 and both.regularisers == (KLPenalty(coef=0.1),)


def test_two_coefficients_add_two_parts_and_one_is_not_given_twice(run):
    both = typed(run, "entropy_coef=0.01", "beta=0.04")
    assert both.regularisers == (EntropyBonus(coef=0.01), KLPenalty(coef=0.04))
    with pytest.raises(ValueError, match="beta and kl_coef both set the coefficient of KLPenalty"):
        typed(run, "beta=0.1", "kl_coef=0.1")


def test_names_with_their_sections_are_read_as_ours(run):
    changed = typed(
        run,
        "actor_rollout_ref.actor.clip_ratio_high=0.28",
        "actor_rollout_ref.rollout.temperature=0.9",
        "orchestrator.sampling.max_tokens=12",
        "trainer.optim.lr=1e-6",
    )
    assert (changed.objective.clip_high, changed.sampling.temperature, changed.sampling.max_length) == (0.28, 0.9, 12)
    assert changed.optimization.learning_rate == 1e-6
    with pytest.raises(ValueError, match=r"orchestrator\.batch_size is not a key here: gimbal counts prompts"):
        typed(run, "orchestrator.batch_size=512")
    with pytest.raises(ValueError, match=r"there is no key trainer\.strange"):
        typed(run, "trainer.strange=1")


@pytest.mark.parametrize("recipe", ["grpo", "cartpole", "flow_grpo"])
def test_a_name_alone_is_the_name_of_a_run_and_that_of_a_part_has_a_path(recipe):
    run = recipes.load(recipe)
    with pytest.raises(ValueError, match=r"name is not a key here: a run is runs/NAME: use --name NAME"):
        typed(run, "name=fg")
    if recipe == "flow_grpo":
        assert typed(run, "rewards.0.name=fg").rewards[0].name == "fg"


def test_every_alias_leads_somewhere(run):
    for theirs, ours in ALIASES.items():
        assert ours in paths(run), ours
        assert locate(run, theirs, "1") == [(ours, "1")]
    for names in BOTH_CLIPS.values():
        assert all(name in paths(run) for name in names)
    for part in PARTS.values():
        assert "coef" in plain(find(part)())
    assert not set(EXPLAINED) & (set(ALIASES) | set(PARTS) | set(BOTH_CLIPS) | set(paths(run)))


def test_checks_see_all_changes_of_a_part_at_once(run):
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Band:
        low: float = 0.0
        high: float = 1.0

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    assert override(Band(), {"low": 2.0, "high": 3.0}) == Band(2.0, 3.0)


def test_nested_keys_flatten():
    nested = {
        "objective": {"clip_high": 0.3},
        "optimization__beta1": 0.8,
        "controllers": {"a.b": {"class": "AdaptiveKL"}},
    }
    assert flatten(nested) == {
        "objective.clip_high": 0.3,
        "optimization.beta1": 0.8,
        "controllers.a.b": {"class": "AdaptiveKL"},
    }


def test_exponents_of_yaml_are_numbers():
    assert read(Text("1e-3"), float) == 1e-3  # YAML 1.1 reads 1e-3 as a string


def test_python_values_pass_as_they_are(run):
    assert override(run, {"objective": Reinforce()}).objective == Reinforce()
    assert override(run, {"objective.clip_high": 1}).objective.clip_high == 1.0


def test_objects_that_are_no_parts_are_told_by_their_names(run):
    for value, sentence in (
        (Epochs, r"curriculum is the class Epochs; a run holds a part, made of it: Epochs\(\)"),
        (sorted, r"curriculum is the function sorted; it must be one of"),
    ):
        with pytest.raises(ValueError, match=sentence):
            override(run, {"curriculum": value})
    with pytest.raises(ValueError, match="in Python also the function itself, without quotes"):
        override(run, flatten({"rewards": "score"}))
