"""Parquet, saved datasets, datasets laid out as on the hub, and streams, by the library ``datasets``."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest

from gimbal import cli
from gimbal.environments import arrow
from gimbal.environments.dataset import Dataset
from gimbal.environments.forms import short
from gimbal.runtime import looking

CARD = """---
configs:
- config_name: main
  default: true
  data_files:
  - {split: train, path: data/train-*.parquet}
  - {split: test, path: data/test-*.parquet}
- config_name: socratic
  data_files: extra/*.parquet
---
# A dataset
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The library, with caches of its own; it takes two seconds to import, and not those who leave these tests out."""
    found = pytest.importorskip("datasets")
    monkeypatch.setattr(found.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found.disable_progress_bars()
    return found


def held(library, name="rows.parquet", **columns):
    dataset = library.Dataset.from_dict(columns or {"prompt": ["a", "b"], "answer": ["1", "2"]})
    if name.endswith(".parquet"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        dataset.to_parquet(name)
    return dataset


def asked(tasks):
    return [tasks[index].prompt for index in range(len(tasks))]


@pytest.mark.slow
def test_parquet(library):
    chat = [[{"role": "user", "content": "2 + 2 = ?"}]] * 2
    held(library, "verl.parquet", prompt=chat, reward_model=[{"ground_truth": "4"}] * 2, data_source=["a", "b"])
    tasks = short("verl.parquet")
    assert [task.id for task in tasks] == ["verl:0", "verl:1"] == [tasks[0].id, tasks[1].id]
    assert (tasks[1].answer, tasks[1].source, tasks[1].columns["messages"]) == ("4", "b", chat[0])
    assert tasks.sources == ("a", "b")
    assert {Path(name).name for name in tasks.digests()} == {"verl.parquet", "verl.parquet (its list of files)"}
    held(library)
    Path("t.jsonl").write_text('{"prompt": "c"}\n')
    assert asked(short("t.jsonl,rows.parquet")) == ["c", "a", "b"]


@pytest.mark.slow
def test_what_is_wrong_with_parquet(library):
    held(library, "q.parquet", question=["a"])
    held(library, "x.parquet", prompt=["a"], x=[1])
    held(library, "y.parquet", prompt=["a"], x=["t"])
    held(library, "none.parquet", prompt=["a", None])
    library.Dataset.from_dict({"prompt": []}).to_parquet("empty.parquet")
    whole = Path("x.parquet").read_bytes()
    Path("half.parquet").write_bytes(whole[: len(whole) // 2])
    Path("words.parquet").write_text("prompt,answer\n")
    for name, sentence in {
        "q.parquet": r"q.parquet, row 0: there is no column 'prompt'; .* \(tasks.prompt=question reads another one\)",
        "x.parquet,y.parquet": "x.parquet, y.parquet cannot be read as one set of rows: ",
        "none.parquet": "none.parquet, row 1: 'prompt' is None; expected text",
        "empty.parquet": "empty.parquet holds no rows",
        "half.parquet": "half.parquet cannot be read as parquet: ",
        "words.parquet": "words.parquet cannot be read as parquet: ",
        "nowhere.parquet": "there is no file nowhere.parquet",
    }.items():
        with pytest.raises(ValueError, match=sentence) as raised:
            len(short(name))
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_images_in_parquet_are_written_when_their_task_is_asked_for(library, tmp_path):
    red, blue = (PIL.Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
    features = library.Features(prompt=library.Value("string"), images=library.List(library.Image()))
    rows = {"prompt": ["a", "a", "b"], "images": [[red], [blue], [red, blue]]}
    library.Dataset.from_dict(rows, features=features).to_parquet("pictures.parquet")
    tasks = short("pictures.parquet")
    assert len(tasks) == 3 and len(set(tasks.questions().tolist())) == 3
    assert not list((tmp_path / "cache").rglob("*.png")), "rows were looked at, and no image was written"
    one, two = tasks[2].columns["images"]
    assert [PIL.Image.open(path).getpixel((0, 0)) for path in (one, two)] == [(255, 0, 0), (0, 0, 255)]
    assert tasks[0].columns["images"] == [one] and len(list((tmp_path / "cache").rglob("*.png"))) == 2
    assert len(list(looking.looked_at(tasks))) == 3


@pytest.mark.slow
def test_datasets_on_disk_and_laid_out_as_on_the_hub(library):
    rows = held(library)
    rows.save_to_disk("saved")
    library.DatasetDict(train=rows, test=rows.select([1])).save_to_disk("both")
    assert asked(short("saved")) == asked(short("both")) == ["a", "b"]
    assert asked(Dataset(path="both", split="test")) == ["b"]
    with pytest.raises(ValueError, match=r"both has the splits train, test: tasks.split=train, or another"):
        len(Dataset(path="both", split="tset"))
    for name in ("data/train-0", "data/train-1", "extra/all"):
        held(library, f"repo/{name}.parquet", prompt=[name])
    held(library, "repo/data/test-0.parquet", prompt=["test"])
    (Path("repo") / "README.md").write_text(CARD)
    assert asked(short("repo")) == ["data/train-0", "data/train-1"]
    assert asked(Dataset(path="repo", split="test")) == ["test"]
    assert asked(Dataset(path="repo", config="socratic")) == ["extra/all"]
    assert asked(Dataset(path="repo", split="train[:50%]")) == ["data/train-0"]
    assert any(name.startswith("repo, split train (") for name in short("repo").digests())
    for words, sentence in {
        "config": "repo cannot be read as a dataset: .*'zzz' not found. Available: .*socratic",
        "split": 'repo cannot be read as a dataset: .*Unknown split "zzz"',
    }.items():
        with pytest.raises(ValueError, match=sentence):
            len(Dataset(path="repo", **{words: "zzz"}))


@pytest.mark.slow
def test_a_stream_is_found_again_by_position(library):
    held(library, "big.parquet", prompt=[f"p{number}" for number in range(300)])
    stream = {"path": "big.parquet", "streaming": True, "buffer": 50, "epoch_size": 200}
    first, again = asked(Dataset(**stream)), Dataset(**stream)
    assert len(set(first)) == 200 and first != sorted(first, key=lambda name: int(name[1:]))
    assert [again[place].prompt for place in (0, 150, 151, 3)] == [first[place] for place in (0, 150, 151, 3)]
    assert asked(Dataset(**stream, seed=1)) != first
    assert asked(Dataset(**{**stream, "buffer": 1}))[:3] == ["p0", "p1", "p2"]
    whole = asked(Dataset(**{**stream, "epoch_size": 310}))
    assert len(set(whole)) == 300 and whole[300:] == whole[:10] and whole[:100] == first[:100], "it begins again"
    Path("t.csv").write_text("prompt\na\n")
    with pytest.raises(ValueError, match=r"the stream t.csv has no known number of rows: tasks.epoch_size=N"):
        len(Dataset(path="t.csv", streaming=True))


@pytest.mark.slow
def test_a_dataset_of_pythons(library):
    rows = held(library, "")
    tasks = short(rows)
    assert asked(tasks) == ["a", "b"] and tasks == short(rows), "written once, under its fingerprint"
    with pytest.raises(ValueError, match=r"tasks is a DatasetDict; give one split of it, such as data\['train'\]"):
        short(library.DatasetDict(train=rows))


def test_without_the_library(monkeypatch, tmp_path):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="datasets")

    monkeypatch.setattr(importlib, "import_module", missing)
    (tmp_path / "rows.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"rows.parquet is parquet, which needs the library datasets, .*'\.\[data\]'"):
        len(short(str(tmp_path / "rows.parquet")))
    with pytest.raises(ValueError, match="openai/gsm8k is a dataset that needs the library datasets"):
        len(short("openai/gsm8k"))


def test_the_words_of_the_library_are_one_line():
    error = ValueError(
        "Config name is missing.\nPlease pick one among the available configs: ['main', 'socratic']\nExample: ..."
    )
    assert arrow.said(error) == "it has several configs (['main', 'socratic']): tasks.config=NAME"


@pytest.mark.slow
def test_a_name_that_the_hub_does_not_give(library, monkeypatch, capsys):
    """At once, and not after the library has tried six times."""
    import huggingface_hub

    def unreachable(self, name, revision, timeout):
        assert timeout <= 10
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(
        ValueError, match=r"there is no file or directory me/mine, and .* hub gives no dataset .*\(no route to host\)"
    ):
        len(short("me/mine"))
    monkeypatch.setattr(library.config, "HF_HUB_OFFLINE", True)
    assert cli.main(["train", "grpo", "tasks=me/mine", "reward=ExactAnswer()", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert "there is no file or directory me/mine, and HF_HUB_OFFLINE is set, so the Hub is not asked" in said


ASKED = """
from gimbal.environments.dataset import Dataset
for words in ({}, {"split": "test"}, {"config": "socratic"}, {"streaming": True, "epoch_size": 2, "buffer": 1}, {"path": "me/none"}):
    tasks = Dataset(**{"path": "me/mine", **words})
    try:
        print([tasks[index].prompt for index in range(len(tasks))], sorted(tasks.digests())[-1])
    except ValueError as error:
        print(str(error)[:80])
"""


@pytest.mark.slow
def test_datasets_of_a_hub(library, tmp_path):
    """Over HTTP, by the hub's own clients; and again without it, by what was downloaded."""
    for name in ("data/train-0", "data/test-0", "extra/all"):
        held(library, f"repo/{name}.parquet", prompt=[name, "b"])
    (Path("repo") / "README.md").write_text(CARD)
    hub = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("hub.py"), "repo"], stdout=subprocess.PIPE, text=True
    )
    away = tmp_path / "away"
    away.mkdir()
    try:
        there = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.stdout.readline().strip()}
        online = subprocess.run(
            [sys.executable, "-c", ASKED], env=there, cwd=away, capture_output=True, text=True, timeout=120
        )
    finally:
        hub.kill()
        hub.wait()
    assert online.stdout.splitlines() == [
        "['data/train-0', 'b'] me/mine, split train (mine-train.arrow)",
        "['data/test-0', 'b'] me/mine, split test (mine-test.arrow)",
        "['extra/all', 'b'] me/mine, split train (mine-train.arrow)",
        "['data/train-0', 'b'] me/mine, split train (commit)",
        "there is no file or directory me/none, and the Hugging Face hub gives no dataset of that name"[:80],
    ], online.stderr
    alone = {**there, "HF_HUB_OFFLINE": "1"}
    offline = subprocess.run(
        [sys.executable, "-c", ASKED], env=alone, cwd=away, capture_output=True, text=True, timeout=120
    )
    said = offline.stdout.splitlines()
    assert said[2] == online.stdout.splitlines()[2] and "me/mine, and HF_HUB_OFFLINE is set" in said[0]
