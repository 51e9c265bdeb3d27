"""docs/from-trl.md: every task runs as it is typed, and every name of its tables is understood."""

import re
import sys
from pathlib import Path

import blocks
import pytest

from gimbal import recipes
from gimbal.cli import main
from gimbal.config import paths
from gimbal.config.aliases import ALIASES, BOTH_CLIPS, EXPLAINED, INPUTS, PARTS
from gimbal.config.overrides import locate

PAGE = blocks.read("from-trl.md")
TASKS = re.split(r"^### ", PAGE.partition("\n## Names")[0], flags=re.MULTILINE)[1:]
NAMED, _, EVERY = PAGE.partition("\n## Every name that is read\n")
ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in row.split(" | ")]
    for row in re.findall(r"^\| (.*) \|$", NAMED.partition("\n## Names")[2], re.MULTILINE)
]


def test_there_are_twenty_tasks_of_less_than_fifteen_lines():
    assert len(TASKS) >= 20
    for task in TASKS:
        made = blocks.blocks(task)
        assert made and all(len(code.splitlines()) <= 15 for _, _, code in made), task


def test_names_of_the_first_table_are_read_as_ours():
    rows = ROWS[: next(n for n, row in enumerate(ROWS) if "per_device_train_batch_size" in row[0])]
    seen = 0
    for *theirs, ours in (row for row in rows if row[-1]):
        for name in (name for cell in theirs for name in cell):
            found = [INPUTS[name]] if name in INPUTS else [path for path, _ in locate(recipes.load("grpo"), name, "1")]
            assert set(found) <= set(ours), (name, found, ours)
            seen += 1
    assert seen > 40


def test_every_name_that_is_read_is_on_the_page():
    rows = [re.findall(r"`([^`]+)`", row) for row in re.findall(r"^\| `.* \| (.*) \|$", EVERY, re.MULTILINE)]
    known = {**ALIASES, **BOTH_CLIPS, **PARTS, **INPUTS}
    assert sorted(name for row in rows for name in row) == sorted(known), "docs/from-trl.md, Every name that is read"


def test_names_of_the_second_table_are_refused_with_what_to_write():
    rows = ROWS[next(n for n, row in enumerate(ROWS) if "per_device_train_batch_size" in row[0]) :]
    names = [name for *theirs, _ in rows for cell in theirs for name in cell]
    assert len(names) > 25
    for name in names:
        with pytest.raises(ValueError, match="is not a key here: "):
            locate(recipes.load("grpo"), name, "1")


def test_every_name_that_is_explained_names_keys_that_there_are():
    known = {path.rpartition(".")[2] for name in ("grpo", "kl_reward") for path in paths(recipes.load(name))}
    known |= {"num_generations", "reward", "regularisers", "reference_resets", "reference_rate"}
    for name, told in EXPLAINED.items():
        for key in re.findall(r"(?<![\w-])([a-z_]+(?:\.[a-z_]+)*)=", told):
            assert key.rpartition(".")[2] in known | {
                "length",
                "url",
                "rank",
                "alpha",
                "targets",
                "cap",
                "level",
                "coef",
                "estimator",
            }, (
                name,
                key,
            )


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty directory with the page's files, and a dataset that is laid out as on the Hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", Path("hf").absolute())
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    datasets.disable_progress_bars()
    blocks.write_files(PAGE, tmp_path)
    Path("openai/gsm8k/main").mkdir(parents=True)
    card = "---\nconfigs:\n- config_name: main\n  data_files:\n  - {split: train, path: main/train-*}\n---\n"
    Path("openai/gsm8k/README.md").write_text(card)
    rows = [{"question": f"{n} + 1 =", "answer": f"so #### {n + 1}"} for n in range(3)]
    datasets.Dataset.from_list(rows).to_parquet("openai/gsm8k/main/train-0.parquet")
    yield tmp_path
    sys.modules.pop("mine", None)


# What cannot start here gets as far as this: the configuration is read, and what is missing is named.
MISSING = {
    "engine=VLLM()": "this needs vllm: pip install -e '.[vllm]' in the clone",
    'engine=VLLMServer(url="http://127.0.0.1:8000")': "there is no vLLM server at http://127.0.0.1:8000",
    "devices=Devices(learner=1, samplers=1)": "GPU",
}
# Sizes that a task needs to do what it says.
MIXED = {"num_generations": "8", "max_length": "64"}  # groups whose answers differ
GIVEN = {
    "dapo": MIXED,
    "filters=[ZeroVariance()]": MIXED,
    "filters=[DropOverlong()]": {"max_length": "64"},
    'engine=VLLMServer(url="http://127.0.0.1:8000")': {"engine.patience": "1"},
    "steps=80": {"steps": "2"},
}


@pytest.mark.slow
def test_every_task_runs(desk, single_thread, capsys):
    done, failed = [], []
    for task in TASKS:
        for language, title, code in blocks.blocks(task):
            if language == "python" and not title:
                exec(
                    compile(
                        code.replace("steps=2", "steps=1, prompts_per_step=2, num_generations=2, max_length=8"),
                        task[:20],
                        "exec",
                    ),
                    {"__name__": "__main__"},
                )
        for line in blocks.commands(task):
            for words, wanted in as_run(line):
                status = main(words)
                said = capsys.readouterr()
                if (status, wanted in said.out + said.err) != (2 if wanted else 0, True):
                    failed.append(f"{line}\n{words}\n{said.out}{said.err}")
            done.append(line)
    assert failed == [] and len(done) > 35, "\n".join(failed)
    assert Path("DIRECTORY/model.safetensors").is_file() and Path("runs/plain-s1/report.html").is_file()


def as_run(line):
    """(words, what is said where it cannot start) of each run that a line of the page is here."""
    words = blocks.words_of(line)
    if words[0] != "train":
        return [(words, "")]
    if not line.startswith("gimbal") or "ray" in words:  # tests of their own start Ray and torchrun
        return [([*words, "--dry-run"], "")]
    words = ["model=gimbal-tiny" if word.startswith("model=") else word for word in words]
    given = {key: value for mark, sizes in GIVEN.items() if mark in words for key, value in sizes.items()}
    wanted = next((told for mark, told in MISSING.items() if mark in words), "")
    typed = [([*words, "--print-config"], wanted if wanted == "GPU" else "")] if "--resume" not in words else []
    if "--seeds" in words:
        at = words.index("--seeds")
        rest = words[:at] + words[at + 4 :]
        return typed + [
            ([*blocks.small(rest, {"seed": str(n)}), "--name", f"{words[at + 3]}-s{n}"], "") for n in range(2)
        ]
    return [*typed, (blocks.small(words, given), wanted)]
