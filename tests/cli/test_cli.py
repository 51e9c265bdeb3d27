"""The command line as a user meets it: what it prints, where, and with which exit code."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import gimbal
from gimbal import api, cli, config, recipes, waiting
from gimbal.cli import seeds
from gimbal.environments.tables import Rewritten
from gimbal.policies.token import CausalLM
from gimbal.report import trackers
from gimbal.report.files import Summary
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import checkpoint, directories, local
from gimbal.runtime.evaluate import EvalResult
from gimbal.runtime.run import Run

TOY = str(Path(__file__).parent / "toy_recipe.py") + ":toy"
REWARD = TOY.replace(":toy", ":reward")


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gimbal", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Runs under tmp_path whose training is a stub; what it was asked for."""
    asked: list[tuple[Run, Path, bool, str]] = []

    def run_local(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        begun(False)
        asked.append((run, directory, resume, name))
        (directory / "metrics.jsonl").touch()
        return Summary(
            recipe=name,
            seed=run.seed,
            steps=run.steps,
            seconds_training=1.0,
            tokens_generated=2,
            before={},
            after={},
            max_age=1,
            mean_discrepancy=0.0,
            peak_memory_mb=1.0,
        )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "run_local", run_local)
    return asked


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["eval", "-h"], ["plan", "--help"], ["list", "recipes"], ["--version"]]
)
def test_help_answers_without_the_imports_that_take_seconds(words):
    result = call(*words)
    assert result.returncode == 0 and result.stdout
    program = (
        f"import sys; from gimbal.cli import main; main({words!r}); assert not {{'torch', 'numpy'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_slow_start_says_what_it_does(capsys, monkeypatch):
    """And a fast one nothing."""
    with waiting.waiting("loading"):
        pass
    monkeypatch.setattr(waiting, "AFTER", 0.01)
    with waiting.waiting("loading"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "gimbal: loading ...\n"


@pytest.mark.slow
def test_a_command_that_imports_for_long_says_so_before_it_is_done():
    program = (
        "import gimbal.waiting, sys; gimbal.waiting.AFTER = 0.05; from gimbal.cli import main; "
        f"sys.exit(main(['train', {TOY!r}, 'objective.clip_hihg=0.3']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = done.stderr.splitlines()
    assert done.returncode == 2 and said[0] == "gimbal: loading torch, transformers and gimbal ..."
    assert said[-1].startswith("gimbal: there is no key objective.clip_hihg")


def test_import_is_light():
    program = "import sys, gimbal; gimbal.__version__; assert not {'torch', 'numpy', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_an_unknown_key_ends_in_one_line_and_code_2(monkeypatch):
    result = call("train", TOY, "objective.clip_hihg=0.3")
    assert (result.returncode, result.stdout) == (2, "")
    # before it, on a slow machine, what it loads
    assert (
        result.stderr.splitlines(keepends=True)[-1]
        == "gimbal: there is no key objective.clip_hihg; did you mean objective.clip_high?\n"
    )
    monkeypatch.setenv("GIMBAL_DEBUG", "1")
    with pytest.raises(ValueError, match="did you mean"):  # so Python shows the traceback
        cli.main(["train", TOY, "objective.clip_hihg=0.3"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], "no command trian; did you mean train?"),
        (["train", "no_such"], "there is no recipe no_such"),
        (["train", TOY, "word"], "'word' is neither a second recipe nor an override"),
        (["train", TOY, "seed=1", "--seed", "2"], "seed is given twice"),
        (["train", TOY, "--name"], "--name needs a value"),
        (["train", TOY, "--from", "x"], "from and RECIPE both say what to train"),
        (["train", "--resume", "x", "seed=3"], "there is no run x"),
        (["train", TOY, "--nme", "x"], "there is no flag --nme; did you mean --name?"),
        (["train", TOY, "--dry-rnu"], "there is no flag --dry-rnu; did you mean --dry-run?"),
        (["train", TOY, "--stpes", "3"], "there is no key stpes; did you mean steps?"),
        (["train", TOY, "steps.=1"], "there is no key steps.; did you mean steps?"),
        (["train", TOY, "objective..clip_high=1"], "there is no key objective..clip_high"),
        (["train", TOY, "tasks=a.jsonl", "tasks=b.jsonl"], "tasks is given twice, as a.jsonl and as b.jsonl"),
        (["train", TOY, "top_p=0.9"], "gimbal: sampling.top_p=0.9 cannot be trained with: set sampling.top_p=1"),
        (["train", TOY, "temperature=0", "top_k=3"], "sampling.temperature=0 sampling.top_k=3 cannot be trained with"),
        (["train", TOY, "objective=ClippedRatio(clip_low=nan)"], "objective.clip_low is nan; it must be a number"),
        (["train", TOY, "objective=ClippedRatio(clip_low=-nan)"], "objective.clip_low is nan; it must be a number"),
        (["train", "--resume", "x"], "there is no run x"),
        (["train", TOY, "num_generations=1"], "compares the rollouts of a group"),
        (["train", TOY, "anchor=Behavior()"], "both"),
        (["eval"], "takes one run or model"),
        (["eval", "nowhere"], "there is no run nowhere"),
        (["list", "things"], "takes one of recipes, methods, tasks"),
        (["show", "clipedratio"], "did you mean ClippedRatio?"),
        (["show", "shiftedclip"], "there is no shiftedclip (gimbal list methods"),
        (["show", "bonus"], "did you mean AgreementEntropyBonus or EntropyBonus?"),
        (["doctor", "gone", "--runs", "elsewhere"], "there is no run gone (no recipe.yaml in it)"),
        (["train", TOY, "=3"], "'=3' has no key"),
        *(
            (["train", TOY, "--name", name], "it must be a single directory name")
            for name in ("a/b", "..", ".", "/tmp")
        ),
    ],
)
def test_refusals(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert sentence in err and err.count("\n") == 1 and err.startswith("gimbal: ") and not out
    assert not list(tmp_path.iterdir())


def test_flags_and_keys_are_the_same(capsys):
    assert (
        cli.main(
            [
                "train",
                TOY,
                "--objective.clip-high",
                "0.3",
                "--steps=7",
                "--optimization.checkpointing",
                "--print-config",
            ]
        )
        == 0
    )
    saved = yaml.safe_load(capsys.readouterr().out)["run"]
    assert (saved["objective"]["clip_high"], saved["steps"], saved["optimization"]["checkpointing"]) == (0.3, 7, True)


def test_dry_run_says_what_follows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", TOY, "--dry-run", "epochs=3", "max_staleness=1"]) == 0
    out = capsys.readouterr().out
    for words in (
        "2 tasks",
        "10 steps",
        "4 prompts x 8 rollouts",
        "32 rollouts",
        "1,024 tokens",
        "6 updates",
        "at most 1 version old",
        "in int8",
        "seed 0",
    ):
        assert words in out, words
    assert not list(tmp_path.iterdir())


def test_dry_run_reads_a_file_of_tasks(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", TOY, "--dry-run", "tasks=absent.jsonl"]) == 2
    assert "there is no file absent.jsonl" in capsys.readouterr().err


def test_help_of_a_recipe_lists_every_key(capsys):
    assert cli.main(["train", "sft", "--help"]) == 0
    first = capsys.readouterr().out.splitlines()[:8]
    assert first[2].startswith("SFT on 64") and first[-1].startswith("  optimization = "), "before all that runs share"
    assert cli.main(["train", TOY, "--help"]) == 0
    out = capsys.readouterr().out
    assert "objective.clip_high = 0.28  (float)" in out
    assert "rewards.0.weight = 1.0  (float)" in out
    assert "threads = 0  (int)  # torch threads; 0 chooses by the number of cores" in out
    assert "The clipped surrogate" in out


def test_a_run_is_saved_and_its_name_never_used_again(trained, capsys):
    assert cli.main(["train", TOY, "steps=3"]) == 0
    assert cli.main(["train", TOY, "steps=3"]) == 0
    assert cli.main(["train", TOY, "--name", "mine", "--seed", "5"]) == 0
    assert [str(directory) for _, directory, *_ in trained] == ["runs/toy-0", "runs/toy-0-2", "runs/mine"]
    assert cli.main(["train", TOY, "--name", "mine"]) == 2
    assert "runs/mine already exists" in capsys.readouterr().err
    assert len(trained) == 3
    recipe, run = config.load(Path("runs/mine"), Run)
    assert (recipe, run, run.seed) == (TOY, trained[2][0], 5)


@pytest.mark.parametrize(
    ("words", "recipe"),
    [(["tasks=rows.jsonl", "reward=ExactAnswer()"], "stable"), (["steps=3"], "demo"), (["grpo"], "grpo")],
)
def test_what_is_trained_where_no_recipe_is_named(tmp_path, monkeypatch, capsys, words, recipe):
    """Somebody's own tasks or model get the closed loop: no learning rate is known to fit them."""
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "2 + 2 =", "answer": "4"}\n')
    assert cli.main(["train", *words, "--dry-run"]) == 0
    assert f"{recipe}: " in capsys.readouterr().out


def test_a_recipe_as_it_ships_is_not_warned_of(trained, capsys):
    """What a user changes is, in one line; and the same through a file, a series and a dry run."""
    Path("mine.yaml").write_text("recipe: grpo\nsteps: 3\n")
    for words in (["grpo"], ["mine.yaml"], ["grpo", "steps=3", "seed=2"], ["grpo", "--dry-run"]):
        assert cli.main(["train", *words]) == 0
        out, err = capsys.readouterr()
        assert not err and out.count("\n") == 1, (words, out, err)
    for words in ([], ["--dry-run"]):
        assert cli.main(["train", "grpo", "objective=Reinforce()", *words]) == 0
        err = capsys.readouterr().err
        assert err.startswith("gimbal: no part bounds the update") and err.count("\n") == 1
    for words in (["grpo", "max_staleness=4"], ["mine.yaml", "max_staleness=4"]):  # more than the recipe ships with
        assert cli.main(["train", *words]) == 0
        err = capsys.readouterr().err
        assert "With max_staleness=4 and one update per batch it matters" in err and err.count("\n") == 1


def test_what_a_recipe_leaves_to_its_user_is_said_of_it_as_shipped_too():
    def told(recipe, **changes):
        return [
            s for s in recipes.warnings(recipes.load(recipe, changes), recipe) if "names no" in s or "Swarm has" in s
        ]

    assert told("dsrl") == told("dsrl", steps=3) and len(told("dsrl")) == 1
    assert len(told("sapo")) == 1 and not told("sac")


def test_a_learning_rate_for_small_networks_is_warned_of_in_a_pretrained_model(tmp_path):
    for name, size in (("large", 200_000_000), ("small", 1000)):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "model.safetensors").open("wb") as file:
            file.truncate(size)  # a hole: it takes no room

    def told(**changes):  # the rate of the recipe, which a pretrained model does not take by itself
        changes = {"learning_rate": 1e-4, **changes}
        return [s for s in recipes.warnings(recipes.load("grpo", changes), "grpo") if "learning_rate" in s]

    (sentence,) = told(model=str(tmp_path / "large"))
    assert sentence.startswith("learning_rate is 0.0001, which suits") and sentence.endswith(": learning_rate=1e-6")
    assert told(model="somebody/model") and not told(model=str(tmp_path / "small")) and not told()
    assert not told(model=str(tmp_path / "large"), learning_rate=1e-6)
    assert not told(model=str(tmp_path / "large"), lora={"class": "LoRA"})


def test_from_starts_anew_and_resume_goes_on(trained):
    cli.main(["train", TOY, "steps=3", "--name", "first"])
    assert cli.main(["train", "--from", "first", "clip_high=0.4", "--name", "second"]) == 0
    assert cli.main(["train", "--resume", "runs/second"]) == 0
    _, (second, directory, anew, _), (resumed, again, resume, name) = trained
    assert (second.steps, second.objective.clip_high, anew) == (3, 0.4, False)
    assert (resumed, again, resume, name) == (second, directory, True, TOY)


def test_the_number_of_threads_is_chosen_once(trained, monkeypatch):
    """By the cores of the machine where the run is created; it stays on another one, unless a person says otherwise."""

    def cores(count):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)))

    cores(8)
    cli.main(["train", TOY, "--name", "first"])
    cli.main(["train", TOY, "threads=2", "--name", "own"])
    cores(1)
    cli.main(["train", "--resume", "first"])
    cli.main(["train", "--from", "first", "--name", "second"])
    cli.main(["train", "--from", "first", "threads=0", "--name", "third"])
    assert [run.threads for run, *_ in trained] == [3, 2, 3, 3, 1]
    cores(8)
    run = recipes.load(TOY)
    for jobs in (4, 1):  # a series continues as it was begun
        directories = seeds.prepared(run, TOY, "series", Path("runs"), [0, 1], jobs)
        assert [config.load(directory, Run)[1].threads for directory in directories] == [1, 1]
    with pytest.raises(ValueError, match="already exists with another recipe"):
        seeds.prepared(replace(run, threads=2), TOY, "series", Path("runs"), [0, 1])


def test_interrupt_says_how_to_go_on(trained, monkeypatch, capsys):
    def interrupted(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        (directory / "metrics.jsonl").write_text("{}\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "run_local", interrupted)
    monkeypatch.setattr(checkpoint, "newest", lambda directory: directory / "checkpoints" / "step_000001")
    assert cli.main(["train", TOY]) == 130
    assert "gimbal train --resume runs/toy-0" in capsys.readouterr().err


@pytest.mark.parametrize("place", [(local, "run_local"), (recipes, "load")])
def test_interrupt_before_the_first_step_says_that_nothing_is_kept(trained, monkeypatch, capsys, place):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(*place, interrupted)
    assert cli.main(["train", TOY]) == 130 and not list(Path().glob("runs/*"))
    said = "gimbal: stopped before the first step; nothing was saved; give the same command again\n"
    assert capsys.readouterr().err.endswith(said)


def test_an_evaluation_on_rows_that_were_trained_on_says_so(trained, monkeypatch, capsys):
    (Path("rows.jsonl")).write_text('{"prompt": "1 + 1 =", "answer": "2"}\n')
    (Path("new.jsonl")).write_text('{"prompt": "1 + 2 =", "answer": "3"}\n')
    result = EvalResult(tasks=1, score=0.0, greedy_score=0.0, length=1.0, pass_at={}, greedy=None)
    monkeypatch.setattr(api, "evaluate", lambda run: result)
    monkeypatch.setattr(directories, "weights", lambda directory: Path(CausalLM().path))
    assert cli.main(["train", "grpo", "tasks=rows.jsonl", "reward=ExactAnswer()", "--name", "it"]) == 0
    capsys.readouterr()
    assert cli.main(["eval", "it", "held_out=new.jsonl"]) == 0 and not capsys.readouterr().err
    assert cli.main(["eval", "it", "held_out=rows.jsonl"]) == 0
    assert "all 1 held-out tasks are also trained on" in capsys.readouterr().err
    Path("rows.jsonl").unlink()  # what was trained on need not be there any more
    assert cli.main(["eval", "it", "held_out=new.jsonl"]) == 0


def test_an_evaluation_reads_columns_as_training_does(trained, monkeypatch):
    seen, result = [], EvalResult(tasks=1, score=0.0, greedy_score=0.0, length=1.0, pass_at={}, greedy=None)
    monkeypatch.setattr(api, "evaluate", lambda run: (seen.append(run.held_out.tasks), result)[1])
    Path("rows.jsonl").write_text('{"question": "1 + 1 =", "answer": "2"}\n')
    assert cli.main(["eval", "gimbal-tiny", "held_out=rows.jsonl", "tasks.prompt=question"]) == 0
    Path("rows.jsonl").write_text('{"question": "1 + 1 ="}\n{"question": "1 + 2 ="}\n')
    assert cli.main(["eval", "gimbal-tiny", "tasks=rows.jsonl", "held_out=1", "tasks.prompt=question"]) == 0
    assert seen[0][0].prompt == "1 + 1 =" and seen[1][0].prompt in ("1 + 1 =", "1 + 2 =")


@pytest.mark.parametrize("kind", [RewardError, Rewritten])
def test_what_broke_says_how_to_go_on(trained, monkeypatch, capsys, kind):
    def broken(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        (directory / "metrics.jsonl").write_text("{}\n")
        raise kind("reward mine broke")

    monkeypatch.setattr(local, "run_local", broken)
    assert cli.main(["train", TOY]) == 2
    assert capsys.readouterr().err == "gimbal: reward mine broke\n"
    monkeypatch.setattr(checkpoint, "newest", lambda directory: directory / "checkpoints" / "step_000001")
    assert cli.main(["train", TOY, "--name", "my run"]) == 2
    assert capsys.readouterr().err.endswith(
        "reward mine broke. Fix it, then continue with: gimbal train --resume 'runs/my run'\n"
    )


def test_a_full_disk_says_how_to_go_on(trained, monkeypatch, capsys):
    def broken(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        (directory / "metrics.jsonl").write_text('{"step": 1}\n')
        raise OSError(errno.ENOSPC, "No space left on device", "state.pt")

    monkeypatch.setattr(local, "run_local", broken)
    assert cli.main(["train", TOY, "--name", "it"]) == 2
    said = capsys.readouterr().err
    assert "the disk is full; free some space" in said and said.endswith(
        "continue with: gimbal train --resume runs/it\n"
    )


@pytest.mark.parametrize("kind", [RewardError, Rewritten])
def test_what_broke_in_the_first_step_says_what_to_do(trained, monkeypatch, capsys, kind):
    def broken(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        begun(False)
        raise kind("reward mine broke")

    monkeypatch.setattr(local, "run_local", broken)
    assert cli.main(["train", TOY]) == 2 and not list(Path("runs").iterdir())
    assert capsys.readouterr().err.endswith(
        "reward mine broke. No step was finished: fix it, then start it again as before\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 9 GiB"),
        RuntimeError("can't allocate memory: 9"),
    ],
)
def test_memory_that_runs_out_is_no_fault_of_the_program(trained, monkeypatch, capsys, error):
    def full(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        raise error

    monkeypatch.setattr(local, "run_local", full)
    assert cli.main(["train", TOY]) == 2
    assert capsys.readouterr().err.startswith("gimbal: out of memory: ")


def test_a_second_process_in_the_same_run_is_refused(trained, capsys):
    cli.main(["train", TOY, "--name", "one"])
    held = os.open("runs/one", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    for words in (
        [],
        ["steps=9"],
    ):  # which writes recipe.yaml again: a lock on that file would be of another one by now
        assert cli.main(["train", "--resume", "one", *words]) == 2
        assert "another process is training in runs/one" in capsys.readouterr().err
    os.close(held)
    assert cli.main(["train", "--resume", "one"]) == 0


def complete(saved):
    """A checkpoint as a run leaves it, but of nothing."""
    (saved / "state.pt").touch()
    logs = {name: {"bytes": 0, "digest": hashlib.blake2b(digest_size=16).hexdigest()} for name in checkpoint.LOGS}
    files = {"state.pt": hashlib.blake2b().hexdigest()}
    manifest = {"step": checkpoint.step_of(saved), "files": files, "logs": logs}
    (saved / "manifest.json").write_text(json.dumps(manifest))


def test_a_resumed_run_tells_what_was_changed_in_its_recipe(trained, monkeypatch, capsys):
    cli.main(["train", TOY, "--name", "one"])
    recipe, saved = Path("runs/one/recipe.yaml"), Path("runs/one/checkpoints/step_000002")
    saved.mkdir(parents=True)
    complete(saved)
    (saved / "recipe.yaml").write_text(recipe.read_text())
    cli.main(["train", "--resume", "one"])
    assert not capsys.readouterr().err
    was = recipe.read_text()
    cli.main(["train", "--resume", "one", "steps=99"])
    assert capsys.readouterr().err.endswith("-> 99: the result is the same as for a run started with that many steps\n")
    with monkeypatch.context() as patch:  # that its files are others was said by then
        stub = local.run_local
        patch.setattr(local, "run_local", lambda *two, begun, **more: stub(*two, begun=lambda _: begun(True), **more))
        cli.main(["train", "--resume", "one"])
    assert capsys.readouterr().err.endswith("-> 99\n")
    recipe.write_text(was.replace("num_generations: 8", "num_generations: 4"))
    cli.main(["train", "--resume", "one"])
    assert "runs/one continues with num_generations 8 -> 4: it is no longer the same run" in capsys.readouterr().err


FOR_A_DRY_RUN_TOO = [
    (["model="], "policy.model is empty"),
    (["model=/nonexist"], "there is no model directory /nonexist"),
    (["model=."], ". has no config.json"),
    (["model=rows.jsonl"], "rows.jsonl has no config.json"),
    (["model=/etc"], "/etc has no config.json"),
    (["tasks=no.jsonl"], "there is no file no.jsonl"),
    (["reward=rows.py:f"], "reward rows.py:f: there is no file"),
    (["--seeds", "0"], "--seeds 0 names no seed"),
    (["--seeds=-1"], "--seeds is -1; it must be"),
    (["--seeds", "x"], "--seeds is x; it must be"),
    (["--seeds", "2", "--jobs", "0"], "--jobs is 0; it must be"),
    (["--runs", ""], "--runs needs a value"),
    (["--runs", "rows.jsonl"], "but runs cannot be written there"),
    (["--runs", "rows.jsonl/runs"], "but runs cannot be written there"),
    (["--runs", "/proc/x"], "but runs cannot be written there"),
    (["--track", ""], "--track needs a value"),
    (["--track", "tensorboard,"], "there is no tracker ''"),
    (["--name", "a/b"], "it must be a single directory name"),
    (["--name", "done"], "runs/done already exists"),
]


SWARM = ["train", TOY, "store=Swarm(directory='swarm', peers=('b',))", "correction=TruncatedWeight()"]


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_two_runs_never_write_to_one_directory_of_a_swarm(tmp_path, monkeypatch, capsys, dry):
    """Told before a model is loaded, with what to type; nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CausalLM, "load", None)
    assert cli.main([*SWARM, *dry, "--seeds", "2"]) == 2
    said = capsys.readouterr().err
    assert "--seeds trains 2 runs, and store.directory and store.name are those of one run of a swarm" in said
    assert said.count("\n") == 1 and not list(tmp_path.iterdir())
    Path("swarm/a").mkdir(parents=True)
    Path("swarm/a/round_000000.pt").touch()
    assert cli.main([*SWARM, *dry]) == 2
    said = capsys.readouterr().err
    assert "swarm/a holds rounds of another run" in said and "store.name=NAME" in said and said.count("\n") == 1
    assert not list(Path().glob("runs/*"))


@pytest.mark.parametrize(("words", "sentence"), FOR_A_DRY_RUN_TOO)
def test_a_dry_run_refuses_what_cannot_run(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").touch()
    Path("runs/done").mkdir(parents=True)
    Path("runs/done/recipe.yaml").write_text(config.dump(recipes.load(TOY), TOY))
    Path("runs/done/metrics.jsonl").write_text('{"step": 1}\n')
    for dry in (["--dry-run"], []):
        assert cli.main(["train", TOY, *dry, *words]) == 2
        out, err = capsys.readouterr()
        assert sentence in err and err.count("\n") == 1 and not out
        assert sorted(path.name for path in Path().rglob("*")) == [
            *("done", "metrics.jsonl", "recipe.yaml", "rows.jsonl", "runs")
        ], "what was there before"


def test_a_name_is_free_again_while_nothing_was_done_under_it(trained, capsys):
    def begin(*words):
        code = cli.main(["train", TOY, "--name", "one", *words])
        return code, capsys.readouterr().err

    Path("runs/one").mkdir(parents=True)  # killed before it wrote its recipe
    assert begin("--dry-run") == (0, "") and begin() == (0, "")
    assert begin()[0] == 0, "killed while it was loaded, for the stub does no step"
    code, err = begin("seed=3")
    assert code == 2 and "with another recipe and no finished step; choose another name, or remove it" in err
    held = os.open("runs/one", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert "runs/one already exists; choose another name, continue that run" in begin()[1]
    os.close(held)
    assert begin()[0] == 0
    for done in ("checkpoints/step_000001/x", "summary.json", "notes.txt"):
        file = Path("runs/one", done)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        assert "already exists; choose" in begin()[1] and "already exists; choose" in begin("--dry-run")[1], done
        file.unlink()
        shutil.rmtree("runs/one/checkpoints", ignore_errors=True)
    Path("runs/one/metrics.jsonl").write_text('{"step": 1}\n')
    assert "runs/one already exists; choose another name" in begin()[1]
    shutil.rmtree("runs/one")
    Path("runs/one").mkdir()
    Path("runs/one/notes.txt").touch()
    assert "runs/one already exists and is not a run" in begin()[1]
    assert len(trained) == 3


def test_a_resumed_run_without_a_checkpoint_begins_from_step_1(trained, capsys):
    cli.main(["train", TOY, "--name", "one"])
    capsys.readouterr()
    assert cli.main(["train", "--resume", "one"]) == 0
    assert capsys.readouterr().out.startswith("runs/one: 10 steps"), "as --seeds begins: nothing was lost"
    Path("runs/one/metrics.jsonl").write_text('{"step": 1}\n')
    assert cli.main(["train", "--resume", "one"]) == 0
    assert capsys.readouterr().out.startswith("runs/one, from step 1 (it has no checkpoint): 10 steps")


def test_a_resumed_run_keeps_its_trackers(trained, monkeypatch, capsys):
    given = []
    stub = local.run_local
    monkeypatch.setattr(local, "run_local", lambda *two, track, **more: (given.append(track), stub(*two, **more))[1])
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    resume = ["train", "--resume", "one"]
    cli.main(["train", TOY, "--name", "one", "--track", "wandb,tensorboard"])
    cli.main(resume)
    assert given == [("wandb", "tensorboard"), ("tensorboard", "wandb")]
    for words in (["--track", "trackio"], [], ["--track", "none"], []):
        assert cli.main([*resume, *words]) == 0
    assert given[2:] == [("trackio",), ("trackio",), (), ()]
    cli.main([*resume, "--track", "wandb"])
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)  # not installed any more
    assert cli.main(resume) == 0 and given[-1] == ("wandb",), "Trackers leaves it out, with a word"
    assert cli.main([*resume, "--track", "wandb"]) == 2 and "this needs wandb" in capsys.readouterr().err
    cli.main(["train", "--from", "one", "--name", "two"])
    assert given[-1] == () and not Path("runs/two/tracked.json").exists()
    Path("runs/one/tracked.json").write_text('{"trackers": ["wandb", 3, "other"]}')
    assert gimbal.train(resume="one") and given[-1] == ("wandb",)
    assert gimbal.train(resume="one", track=()) and gimbal.train(resume="one") and given[-2:] == [(), ()]


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl", "summary.json", "schedule.jsonl", "tracked.json"])
@pytest.mark.parametrize("what", ["directory", "loop"])
def test_a_file_of_a_run_that_is_none_is_told_by_name(trained, capsys, name, what):
    cli.main(["train", TOY, "--name", "one"])
    file = Path("runs/one", name)
    file.unlink(missing_ok=True)
    file.mkdir() if what == "directory" else file.symlink_to(name)
    capsys.readouterr()
    kind = "a directory" if what == "directory" else "a link to nowhere"
    assert cli.main(["train", "--resume", "one"]) == 2
    assert capsys.readouterr().err == f"gimbal: {file} is {kind}, and a run keeps a file there; move it away\n"
    for command in ("doctor", "report"):
        code = cli.main([command, "one"])
        err = capsys.readouterr().err
        assert "Errno" not in err and "Traceback" not in err and (code == 2) == bool(err), (command, err)


def test_from_says_with_which_weights_it_begins(trained, capsys):
    cli.main(["train", TOY, "--name", "first"])
    Path("runs/first/summary.json").write_text("{}")
    model = Path("runs/first/model")
    shutil.copytree(CausalLM().path, model)
    capsys.readouterr()
    cli.main(["train", "--from", "first", "--name", "second"])
    said = (
        "gimbal: using the recipe of runs/first with the initial weights; "
        "to start from its trained weights, add model=runs/first/model\n"
    )
    assert capsys.readouterr().err == said
    cli.main(["train", "--from", "first", f"model={model}", "--name", "third"])
    assert not capsys.readouterr().err
    assert cli.main(["train", "--resume", "first", "seed=3"]) == 2
    way = "gimbal train --from runs/first [key=value ...], with model=runs/first/model to start from its trained weights\n"
    assert capsys.readouterr().err.endswith(way)


def test_a_sigterm_while_a_run_is_loaded_is_told_as_a_ctrl_c(trained, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def killed(*given, **named):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    for place in ((recipes, "load"), (local, "run_local")):
        with monkeypatch.context() as patch:
            patch.setattr(*place, killed)
            assert cli.main(["train", TOY]) == 130 and not list(Path().glob("runs/*"))
        said = "gimbal: stopped before the first step; nothing was saved; give the same command again\n"
        assert capsys.readouterr().err.endswith(said)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_that_never_began_leaves_nothing(trained, monkeypatch):
    def refused(run, directory, *, resume=False, name="", track=(), begun=lambda edited: None):
        raise ValueError("no model")

    monkeypatch.setattr(local, "run_local", refused)
    assert cli.main(["train", TOY]) == 2
    assert not list(Path("runs").iterdir())


def test_python_is_the_same_front_door(trained):
    def shout(prompts, completions):
        return [1.0 for _ in completions]

    result = gimbal.train(
        TOY, model="/a/model", reward=REWARD, tasks=[{"prompt": "1+1="}], objective={"clip_high": 0.4}, steps=2
    )
    run, directory, *_ = trained[0]
    assert (result.directory, result.run, result.summary.steps) == (directory, run, 2)
    assert run.policy.model == "/a/model" and run.objective.clip_high == 0.4
    assert run.rewards[0].name == "reward" and run.tasks[0].prompt == "1+1="
    assert run.held_out is None
    gimbal.train(TOY, optimization__beta1=0.5)
    assert trained[1][0].optimization.beta1 == 0.5
    with pytest.raises(ValueError, match="top level"):
        gimbal.train(TOY, reward=shout)
    with pytest.raises(ValueError, match=r"did you mean steps\?"):
        gimbal.train(TOY, stepz=2)


def test_what_the_run_bounds_is_no_field_of_its_rule(capsys):
    for words in (["show", "grpo"], ["show", "Pace"], ["train", "grpo", "--help"], ["train", "grpo", "--print-config"]):
        assert cli.main(words) == 0
        out = capsys.readouterr().out
        assert "Pace" in out and "groups_per_step" not in out, words
        assert not re.search(r"Pace[^\n}#]*max_staleness", out), words  # the run's own field is its only place
    run = recipes.load("grpo")
    assert config.read(config.plain(run), Run) == run
    with pytest.raises(ValueError, match=r"staleness\.max_staleness"):
        recipes.load("grpo", {"staleness.max_staleness": 3})


def test_a_served_run_has_the_version_of_its_checkpoint(tmp_path):
    for place in ("run/checkpoints/step_000012.2/model", "model"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "run/recipe.yaml").write_text("run: {}")
    (tmp_path / "model/config.json").touch()
    complete(tmp_path / "run/checkpoints/step_000012.2")
    assert (api.version("run", tmp_path), api.version(str(tmp_path / "model"), tmp_path)) == (12, 0)


def test_show_names_equation_place_and_fields(capsys):
    for name in ("ClippedRatio", "clipped_ratio", "clippedratio"):
        assert cli.main(["show", name]) == 0
        out = capsys.readouterr().out
        assert (
            "arXiv:1707.06347" in out
            and "gimbal.objectives.surrogates.clipped_ratio:" in out
            and "clip_low   float = 0.2" in out
        )


def test_a_port_in_use_tells_of_port_0(trained, capsys):
    cli.main(["train", TOY, "--name", "one"])
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert cli.main(["report", "one", "--serve", "--port", str(used.getsockname()[1])]) == 2
    assert capsys.readouterr().err.startswith("gimbal: this port is already in use; give another --port")


def test_closed_streams_are_no_error():
    program = f"exec {sys.executable} -m gimbal list recipes <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", program], timeout=60).returncode == 0
    result = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m gimbal trian >&-"], capture_output=True, timeout=60
    )
    assert result.returncode == 2 and b"did you mean train?" in result.stderr


def test_lists(capsys):
    assert cli.main(["list", "methods"]) == 0
    out = capsys.readouterr().out
    assert (
        "ClippedRatio " in out and "GroupNormalized " in out and "TokenMean " in out and "AbstractObjective" not in out
    )
    assert cli.main(["list", "tasks"]) == 0
    out = capsys.readouterr().out
    assert "Dataset " in out and "chain_sum" in out


def test_env_tells_versions_and_nothing_private(capsys):
    assert cli.main(["env"]) == 0
    out = capsys.readouterr().out
    for name in ("gimbal", "python", "torch", "transformers", "cores", "threads", "gpu"):
        assert f"  {name} " in out
    assert str(Path.home()) not in out and os.uname().nodename not in out


def test_public_names_exist():
    for name in gimbal.__all__:
        assert getattr(gimbal, name) is not None
    assert gimbal.train is api.train
    with pytest.raises(AttributeError):
        gimbal.nothing  # noqa: B018


def test_lists_begin_where_people_begin_and_are_in_order(capsys):
    from gimbal import recipes

    assert cli.main(["list", "recipes"]) == 0
    head = capsys.readouterr().out.splitlines()[: len(recipes.START) + 1]
    assert head[0] == "start here" and [line.split()[0] for line in head[1:]] == list(recipes.START)
    assert set(recipes.START) <= set(recipes.names())
    assert cli.main(["list", "tasks"]) == 0
    named = [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]]
    assert named == sorted(named) and "Dataset" in named
