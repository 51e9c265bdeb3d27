"""What fails before the end of the first step: one sentence that says what to type, and no directory but what the doctor reads."""

import re
from pathlib import Path

import pytest

from gimbal import cli, config, recipes
from gimbal.cli import seeds
from gimbal.runtime import directories

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"
REWARDS = """
def want(completions, gold): return [1.0 for _ in completions]
def want_more(completions, gold, **columns): return [1.0 for _ in completions]
def want_answer(completions, answer): return [float(a in c) for a, c in zip(answer, completions)]
def read(completions, **columns): return [float(a in c) for a, c in zip(columns["gold"], completions)]
def scalar(completions): return 1.0
def nothing(completions): pass
def nan(completions): return [float("nan") for _ in completions]
def text(completions): return ["1.0" for _ in completions]
def few(completions): return [1.0]
def mapping(solution_str): return {"points": 1.0}
number = 3
"""
LIST = r"; expected a list of 4 numbers, one for each completion, as in `return \[float"
CASES = {
    "mine.py:wan": r"mine\.py has no wan; did you mean want\?",
    "mine.py:number": r"it is 3; a reward is a function",
    "nowhere.py:f": r"reward nowhere\.py:f: there is no file .*nowhere\.py",
    "nowhere.f:g": r"there is no module nowhere; a function in a file is path/file\.py:g",
    "broken.py:f": r"it raised SyntaxError: .*\(broken\.py, line 1\)",
    "mine.py:want": r"takes the column `gold`, and task rows:1 has only id, source, and its prompt as prompts; name .* gold=None",
    "mine.py:want_more": r"takes the column `gold`, and task rows:1 has only",
    "mine.py:want_answer": r"takes the column `answer`, and task rows:1 has only id, source",
    "mine.py:read": r"it raised KeyError: 'gold' \(mine\.py, line 5\); the columns are answer, id, source",
    "mine.py:scalar": r"it returned 1\.0" + LIST,
    "mine.py:nothing": r"it returned None" + LIST,
    "mine.py:nan": r"it returned nan as the score of completion 0; expected a finite number",
    "mine.py:text": r"it returned '1\.0' as the score of completion 0; expected a number, or None",
    "mine.py:few": r"it returned 1 score for 4 completions; expected one for each",
    "mine.py:mapping": r"it returned the dict {'points': 1\.0}, which has no key 'score'",
    "ReasoningScore()": r"scores tasks of reasoning-gym only, and task rows:1 is none: .*reward=file\.py:function",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(REWARDS)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1 ="}\n{"prompt": "2 + 1 ="}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_reward_that_cannot_score(place, capsys):
    for reward, sentence in CASES.items():
        words = [QUICK, "tasks=rows.jsonl", "held_out=None", f"reward={reward}", "threads=1"]
        assert cli.main(["train", *words]) == 2, reward
        err = capsys.readouterr().err.splitlines()[-1]  # before it are warnings about the recipe
        assert re.search(sentence, err) and "--resume" not in err, (reward, err)
        assert "adapters.py" not in err and "TypeError" not in err
        for directory in Path("runs").glob("*"):
            assert sorted(path.name for path in directory.iterdir()) == ["recipe.yaml", "stopped.json"], reward


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tasks=nowhere.jsonl"], "there is no file nowhere.jsonl"),
        (["held_out=nowhere.jsonl"], "there is no file nowhere.jsonl"),
        (["model=/no/where"], "there is no model directory /no/where"),
        (["workflow=Dialogue(tool='mine.py:Calculator()')"], "mine.py has no Calculator"),
        (["tasks=mine.py:Sums()"], "mine.py has no Sums"),
        (["policy=mine.py:Net()"], "mine.py has no Net"),
    ],
)
def test_a_part_that_is_not_there(place, capsys, words, sentence):
    assert cli.main(["train", QUICK, "threads=1", *words]) == 2
    out, err = capsys.readouterr()
    assert sentence in err and err.count("\n") == 1 and not out, (
        "advice and the header come once nothing can be refused"
    )
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


@pytest.mark.parametrize("recipe", ["nowhere.yaml", "mine.py:recipe", "nowhere.py:recipe", "mine.py:want"])
def test_a_recipe_that_is_not_there(place, capsys, recipe):
    assert cli.main(["train", recipe]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not Path("runs").exists()


def test_seeds_of_a_run_that_cannot_begin(place, capsys, monkeypatch):
    """What every seed would be refused for is told once; a seed that fails before its first step leaves nothing."""
    words = ["train", QUICK, "tasks=rows.jsonl", "held_out=None", "threads=1", "--seeds", "2"]
    assert cli.main([*words, "reward=mine.py:wan"]) == 2
    assert "did you mean want?" in capsys.readouterr().err and not Path("runs").exists()
    monkeypatch.setattr(seeds.Series, "_train", lambda self, directory, job: 2)
    assert cli.main([*words, "reward=mine.py:nan"]) == 2
    assert "2 of 2 runs failed" in capsys.readouterr().err and not list(Path("runs").iterdir())


@pytest.mark.parametrize(
    "words", [["reward=mine.py:want"], ["tasks=rows.jsonl"], ["held_out=rows.jsonl"], ["tasks=mine.py:Rows2()"]]
)
def test_from_another_directory_relative_files_are_refused_with_the_way(place, capsys, monkeypatch, words):
    with (place / "mine.py").open("a") as file:
        file.write("from gimbal.environments.dataset import Dataset\nfrom dataclasses import dataclass\n")
        file.write("@dataclass(frozen=True, kw_only=True)\nclass Rows2(Dataset):\n    path: str = 'rows.jsonl'\n")
    run = recipes.load(QUICK, {key: config.Text(value) for key, value in [word.split("=") for word in words]})
    directory = place / directories.create(run, QUICK, "one", Path("runs"))
    assert config.load(directory, type(run))[1].seed == run.seed
    (place / "elsewhere").mkdir()
    capsys.readouterr()
    monkeypatch.chdir(place / "elsewhere")
    for command in (["train", "--resume"], ["train", "--from"], ["eval"]):
        assert cli.main([*command, str(directory)]) == 2
        err = capsys.readouterr().err
        assert (
            f"relative to the directory where the run was started: first run cd {place}" in err and err.count("\n") == 1
        )


def test_dry_run_loads_the_reward(place, capsys):
    words = ["train", QUICK, "tasks=rows.jsonl", "held_out=None", "--dry-run"]
    assert cli.main([*words, "reward=mine.py:want"]) == 2
    out, err = capsys.readouterr()
    assert "takes the column `gold`" in err and err.count("\n") == 1 and not out
    assert cli.main([*words, "reward=mine.py:scalar"]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sft", "stability=Stability()"], "these rows were not sampled: stability=None"),
        (["stable", "learning_rate=0"], "0 stays 0: set learning_rate=1e-5"),
        (["stable", "stability.region.kl=1e9"], "Region.kl is 1000000000.0"),
        (["demo", "faults=Faults(logprob_noise=inf)"], "faults.logprob_noise is inf; it must be finite"),
        (["mem_act", "workflow.answers=0"], "set it to 1 or more, or use workflow='SingleTurn()'"),
        (["echo_ttrl", "workflow.roots=32"], "workflow.roots=8 leaves the others for forks"),
        (["xrpo", "budget.inside=Seeded()"], "budget.inside='IntervalShared()'"),
        (["grpo", "engine.drafter=DraftModel(model='gimbal-tiny',layers=2)"], "leave out one of the two"),
    ],
)
def test_what_means_nothing_is_refused_as_it_is_typed(place, capsys, words, sentence):
    assert cli.main(["train", *words, "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err and not (place / "runs").exists()


@pytest.mark.parametrize(
    "recipe", ["greso", "vade", "dps", "dars", "duet", "sgpo", "until_mixed", "rollout_gdro", "retiring", "xrpo", "v0"]
)
def test_a_recipe_that_goes_by_the_past_takes_a_reward_of_ones_own(place, capsys, recipe):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    assert cli.main(["train", recipe, "tasks=rows.jsonl", "held_out=none", "reward=mine.py:known", "--dry-run"]) == 0


def test_a_workflow_that_goes_by_a_reward_takes_ones_own_as_it_is_typed(place, capsys):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    words = ["train", "arrol", "tasks=rows.jsonl", "held_out=none", "reward=mine.py:known", "--dry-run"]
    assert cli.main(words) == 2
    assert "Pruning goes by ReasoningScore ('reasoning'), but this run has 'known'" in capsys.readouterr().err
    assert cli.main([*words, "workflow.reward=mine.py:known"]) == 0


def test_a_reward_that_a_part_names_is_named_again_as_it_is_typed(place, capsys):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    words = ["train", "kimi_length", "tasks=rows.jsonl", "held_out=none", "reward=mine.py:known", "--dry-run"]
    assert cli.main(words) == 2
    assert (
        "reads the reward 'reasoning'" in (said := capsys.readouterr().err) and "(reward_shaping.0.right=known)" in said
    )
    assert cli.main([*words, "right=known"]) == 0


def test_drafts_as_they_are_typed(place):
    pytest.importorskip("diffusers")
    reward = "DigitClass(wanted=4,name='log_p')"
    words = ["train", "diffusion_nft", f"workflow=Preselected(draft=4,keep=8,reward={reward})", f"rewards=[{reward}]"]
    assert cli.main([*words, "held_out.workflow=SingleTurn()", "--dry-run"]) == 0
    assert cli.main(["train", "sol_rl", "workflow.draft=3", "workflow.keep=8", "--dry-run"]) == 0


def test_splits_as_they_are_typed(place, capsys):
    pytest.importorskip("diffusers")
    words = ["train", "branch_grpo", "--dry-run"]
    assert cli.main([*words, "workflow.splits=2,4", "workflow.factor=3"]) == 0
    assert cli.main([*words, "workflow=FixedSplits(splits=(1,),factor=16)", "advantage=NodeNormalized(eps=1e-8)"]) == 0
    capsys.readouterr()
    assert cli.main([*words, "workflow.splits=2,9"]) == 2
    assert "splits before step 9, which is not sampled" in capsys.readouterr().err
    assert cli.main([*words, "workflow.splits=3,2"]) == 2
    assert "rising numbers of steps from 1" in capsys.readouterr().err


LABELS = '{"prompt": "1 + 1 =", "answer": "2"}\n'


@pytest.mark.parametrize(
    ("recipe", "way"),
    [
        ("ttrl", "'reward=mine.py:known*0,Majority()'"),
        ("dapo", "'reward=mine.py:known,OverlongPenalty(limit=44, zone=8)'"),
    ],
)
def test_a_reward_of_ones_own_goes_beside_what_a_recipe_is_scored_by(place, capsys, recipe, way):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    words = ["train", recipe, "tasks=rows.jsonl", "--dry-run"]
    assert cli.main([*words, "reward=mine.py:known"]) == 0
    assert way in (said := capsys.readouterr().err) and "belongs to this recipe's method" in said
    assert cli.main([*words, way.strip("'")]) == 0 and "recipe's method" not in capsys.readouterr().err


def test_a_vote_is_kept_where_the_recipes_measure_cannot_read_the_tasks(place, capsys):
    assert cli.main(["train", "ttrl", "tasks=rows.jsonl", "--dry-run"]) == 2
    assert (
        "To keep Majority, by which this run is scored: 'reward=file.py:function*0,Majority()'"
        in capsys.readouterr().err
    )
    (place / "rows.jsonl").write_text(LABELS)
    assert cli.main(["train", "ttrl", "tasks=rows.jsonl", "reward=ExactAnswer(weight=0),Majority()", "--dry-run"]) == 0


LATE = """
from dataclasses import dataclass
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, AbstractCurriculumSpec


@dataclass(frozen=True, kw_only=True)
class Broken(AbstractCurriculumSpec):
    def start(self, tasks, seed):
        return None


@dataclass(frozen=True, kw_only=True)
class Missing(AbstractCurriculumSpec):
    def start(self, tasks, seed):
        return tasks[0].columns["terms"]


class LiveInts(AbstractBudget):
    def plan(self, tasks):
        return [2 for _ in tasks]


@dataclass(frozen=True, kw_only=True)
class Ints(AbstractBudgetSpec):
    def start(self, rollouts, max_length):
        return LiveInts()
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["budget=Deepened(most=2)"], "raise most, or lower that"),
        (
            ["reward=mine.py:known,mine.py:known"],
            "name it, as in Function(function='mine.py:known', name='other', weight=1)",
        ),
        (
            ["curriculum=own.py:Broken"],
            "Broken.start (own.py, line 8) returned None; it must return its live half, which is an AbstractCurriculum",
        ),
        (["curriculum=own.py:Missing"], "Missing (curriculum) raised KeyError: 'terms' (own.py, line 15)"),
        (["budget=own.py:Ints"], "it must return a list of 16 Plan(rollouts=..., max_length=...)"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(place, capsys, words, sentence):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    (place / "own.py").write_text(LATE)
    command = ["train", "grpo", "tasks=rows.jsonl", "held_out=none", "reward=mine.py:known"]
    assert cli.main([*(word for word in command if words[0][:7] != word[:7]), *words, "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err


def test_answers_that_are_numbers_are_told_where_a_function_compares_them(place, capsys):
    (place / "mine.py").write_text(
        "def known(completions, answer): return [float(a in c) for a, c in zip(answer, completions)]\n"
    )
    words = ["train", "grpo", "tasks=rows.jsonl", "held_out=none", "--dry-run"]
    (place / "rows.jsonl").write_text(LABELS.replace('"2"', "2"))
    assert cli.main([*words, "reward=mine.py:known"]) == 0
    assert "is the number 2, and a reward function receives it as a number" in capsys.readouterr().err
    assert cli.main([*words, "reward=ExactAnswer()"]) == 0 and "is the number" not in capsys.readouterr().err
    (place / "rows.jsonl").write_text(LABELS)
    assert cli.main([*words, "reward=mine.py:known"]) == 0 and "is the number" not in capsys.readouterr().err


def test_a_printed_config_names_every_file_from_here_and_is_read_again(place, capsys):
    (place / "mine.py").write_text("def known(completions): return [1.0 for _ in completions]\n")
    (place / "own.py").write_text(LATE)
    words = ["tasks=rows.jsonl", "held_out=none", "reward=mine.py:known", "curriculum=own.py:Missing", "--print-config"]
    assert cli.main(["train", "grpo", *words]) == 0
    text = capsys.readouterr().out
    assert "own.py:Missing" in text and "mine.py:known" in text and str(place) not in text
    (place / "again.yaml").write_text(text)
    assert cli.main(["train", "again.yaml", "--print-config"]) == 0
    assert "own.py:Missing" in capsys.readouterr().out


@pytest.mark.parametrize(("frozen", "asked"), [(0, 1), (7, 0)])
def test_modules_are_left_out_of_collections_once_before_a_run_begins(frozen, asked, tmp_path, monkeypatch):
    import gc

    from gimbal import api

    calls = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(api, "launch", lambda *a, **k: calls.append("launch"))
    assert cli.main(["train", "demo", "steps=1", "--runs", str(tmp_path)]) == 0
    assert calls == ["freeze"] * asked + ["launch"]
