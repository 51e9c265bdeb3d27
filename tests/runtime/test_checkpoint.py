"""One whole checkpoint is there at every moment, and a damaged one is never taken."""

import errno
import itertools
import json
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from small import small_run

from gimbal import durable
from gimbal.cli import sentence
from gimbal.policies.categorical import Categorical
from gimbal.report.files import JsonLines
from gimbal.runtime import checkpoint, directories
from gimbal.runtime.local import Trainer

POLICY = Categorical(observations=4, actions=2, hidden=(8,)).load()


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """Disks are slow, and none fails here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def save(directory, step, keep=2, **state):
    return checkpoint.save(directory, step, POLICY, {"step": step, **state}, keep=keep)


def log(directory, *steps):
    for step in steps:
        JsonLines(directory / "metrics.jsonl").append({"step": step, "loss": step / 3})


def names(directory):
    return [path.name for path in checkpoint.all_of(directory)]


def taken(directory):
    """(name of the checkpoint that a resumed run continues from, what is said on the way)."""
    said = []
    found = checkpoint.resumable(directory, said.append)
    return None if found is None else found.name, said


class Killed(BaseException):
    """Nothing catches it but what a kill would not run either."""


class Operations:
    """The operations on files of this process, in order; at number ``last`` it is killed instead."""

    NAMES = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync")

    def __init__(self, patch, last=None):
        self.done, self.last = [], last
        for name in self.NAMES:
            patch.setattr(os, name, self._counted(name, vars(os)[name]))
        patch.setattr(torch, "save", self._counted("save", torch.save))

    def _counted(self, name, function):
        def counted(*args, **kwargs):
            if len(self.done) + 1 == self.last:
                raise Killed
            place = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else args[0]
            if "dir_fd" in kwargs and kwargs["dir_fd"] is not None:
                place = Path(os.readlink(f"/proc/self/fd/{kwargs['dir_fd']}")) / place
            self.done.append((name, str(place), *map(str, args[1:])))
            return function(*args, **kwargs)

        return counted


@pytest.mark.parametrize("again", [1, 2], ids=["the same step", "the next step"])
def test_a_kill_at_any_operation_of_a_save_leaves_a_whole_checkpoint(tmp_path, monkeypatch, again):
    for last in itertools.count(1):
        directory = tmp_path / str(last)
        save(directory, 1, keep=1, state="first")
        with monkeypatch.context() as patch:
            operations = Operations(patch, last)
            try:
                save(directory, again, keep=1, state="second")
            except Killed:
                pass
            else:
                break
        found = checkpoint.resumable(directory, pytest.fail)
        assert found is not None, operations.done[-1]
        assert checkpoint.load(found)["state"] in ("first", "second")
        save(directory, again + 1, keep=1)  # remnants hinder nothing, and go
        assert [path.name for path in (directory / "checkpoints").iterdir()] == [f"step_{again + 1:06d}"]
    assert last > 20 and checkpoint.load(checkpoint.newest(directory))["state"] == "second"


def test_all_of_it_is_on_disk_before_it_counts_and_before_others_go(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    log(tmp_path / "run", 1)
    with monkeypatch.context() as patch:
        operations = Operations(patch).done
        save(tmp_path / "run", 1, keep=1)
        save(tmp_path / "run", 2, keep=1)
    root = tmp_path / "run" / "checkpoints"
    renames = [at for at, done in enumerate(operations) if done[0] == "rename"]
    for at, step in zip(renames, ("step_000001", "step_000002"), strict=True):
        assert operations[at][2] == str(root / step)
        partial = operations[at][1]
        before = {done[1] for done in operations[:at] if done[0] == "fsync"}
        inside = (root / "step_000002").rglob("*")
        wanted = {str(path).replace(str(root / "step_000002"), partial) for path in inside} | {partial}
        assert wanted <= before and str(tmp_path / "run" / "metrics.jsonl") in before
    after = operations[renames[1] + 1 :]
    removal = next(at for at, done in enumerate(after) if done[0] in ("unlink", "rmdir"))
    assert ("fsync", str(root)) in after[:removal] and "manifest.json" in after[removal][1]
    made = operations[renames[0] + 1 : renames[0] + 4]  # the first makes directories, which their parents must list
    assert {done[1] for done in made} == {str(root), str(tmp_path / "run"), str(tmp_path)}


def test_the_newest_is_by_number_and_by_saving(tmp_path):
    for step in (999_999, 1_000_000):
        save(tmp_path, step, keep=3)
    assert names(tmp_path) == ["step_999999", "step_1000000"] and taken(tmp_path) == ("step_1000000", [])
    again = [save(tmp_path, 1_000_000, keep=3, state=n).name for n in range(2, 12)]
    assert again[-1] == "step_1000000.11" and names(tmp_path) == ["step_999999", "step_1000000.11"]
    (tmp_path / "checkpoints" / "step_000003_mine").mkdir()
    (tmp_path / "checkpoints" / "step_000003_mine" / "manifest.json").write_text("{}")
    (tmp_path / "checkpoints" / "step_2000000").touch()
    (tmp_path / "checkpoints" / "step_2000001").symlink_to("step_2000001")
    save(tmp_path, 1_000_001, keep=1)
    assert {"step_2000000", "step_2000001"} <= {path.name for path in (tmp_path / "checkpoints").iterdir()}
    for stray in ("step_2000000", "step_2000001"):
        (tmp_path / "checkpoints" / stray).unlink()
    assert names(tmp_path) == ["step_1000001"]
    assert (tmp_path / "checkpoints" / "step_000003_mine").is_dir(), "not ours to remove"


def spoil(checkpoint_, name, change):
    path = checkpoint_ / name
    path.write_bytes(change(path.read_bytes()))


def changed(manifest, **values):
    return json.dumps(json.loads(manifest) | values).encode()


SPOILT = {
    "a bit of the state": ("state.pt", lambda old: old[:-9] + bytes([old[-9] ^ 1]) + old[-8:]),
    "no state": ("state.pt", None),
    "a torn manifest": ("manifest.json", lambda old: old[: len(old) // 2]),
    "an empty manifest": ("manifest.json", lambda old: b""),
    "a manifest nested beyond measure": ("manifest.json", lambda old: b"[" * 100_000),
    "another manifest": ("manifest.json", lambda old: b"[1, 2]"),
    "no text": ("manifest.json", lambda old: b"\xff\xfe"),
    "keys missing": ("manifest.json", lambda old: b'{"step": 3}'),
    "wrong kinds": (
        "manifest.json",
        lambda old: b'{"step": 3, "files": {"state.pt": 7}, "logs": {"metrics.jsonl": 5}}',
    ),
    "no logs": ("manifest.json", lambda old: changed(old, logs={})),
    "no files": ("manifest.json", lambda old: changed(old, files={})),
    "another step": ("manifest.json", lambda old: changed(old, step=999)),
    "a log of a negative size": ("manifest.json", lambda old: old.replace(b'"bytes": 0', b'"bytes": -1')),
    "weights": ("model/policy.json", lambda old: old + b" "),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_checkpoint_is_passed_over_with_a_word(tmp_path, name, capsys):
    file, change = SPOILT[name]
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    newest = checkpoint.newest(tmp_path)
    files = sorted(path.name for path in (newest / "model").iterdir())
    file = file.replace("policy.json", files[0])
    if change is None:
        (newest / file).unlink()
    else:
        spoil(newest, file, change)
    found, said = taken(tmp_path)
    assert found == "step_000002" and len(said) == 1
    assert "step_000003" in said[0] and said[0].endswith("; step_000002 is used instead") and "\n" not in said[0]
    if file != "state.pt":  # what evaluates reads the weights alone
        assert directories.weights(tmp_path) == tmp_path / "checkpoints" / "step_000002" / "model"
        assert "step_000002 is used instead" in capsys.readouterr().err
    save(tmp_path, 3, keep=3)  # the run came there again
    assert names(tmp_path) == ["step_000001", "step_000002", "step_000003.2"]
    for path in checkpoint.all_of(tmp_path):
        (path / "state.pt").write_bytes(b"")
    with pytest.raises(checkpoint.CheckpointError, match=r"step_000003.2/state.pt.*no other.*--from") as error:
        taken(tmp_path)
    assert "\n" not in str(error.value)


def test_a_future_that_a_run_has_gone_back_from_goes(tmp_path):
    for step in (4, 5, 6):
        save(tmp_path, step, keep=3)
    spoil(tmp_path / "checkpoints" / "step_000006", "state.pt", lambda old: b"")
    save(tmp_path, 5, keep=1)
    assert names(tmp_path) == ["step_000005.2"], "not the damaged one because its number is larger"


@pytest.mark.parametrize("what", ["loop", "nowhere", "file"])
@pytest.mark.parametrize("name", ["step_000002", ".partial_000002", "step_000002.2"])
def test_what_is_no_checkpoint_is_in_nobodys_way(tmp_path, name, what):
    """A link to itself or to nowhere, or a file, under the name that the next checkpoint would have."""
    save(tmp_path, 1)
    place = tmp_path / "checkpoints" / name
    place.write_text("mine") if what == "file" else place.symlink_to(name if what == "loop" else "nowhere")
    assert taken(tmp_path) == ("step_000001", [])
    free = {"step_000002": "step_000002.2", "step_000002.2": "step_000002.3"}.get(name, "step_000002")
    assert save(tmp_path, 2).name == free and taken(tmp_path) == (free, [])
    save(tmp_path, 3, keep=1)
    assert names(tmp_path) == ["step_000003"]
    assert place.is_symlink() or place.is_file() or name.startswith(".partial"), "it is somebody's own"


def test_a_checkpoint_behind_a_link_is_one_and_only_the_link_is_removed(tmp_path):
    save(tmp_path, 1)
    kept = (tmp_path / "checkpoints" / "step_000001").rename(tmp_path / "elsewhere")
    (tmp_path / "checkpoints" / "step_000001").symlink_to(kept)
    assert taken(tmp_path) == ("step_000001", [])
    save(tmp_path, 2, keep=1)
    assert names(tmp_path) == ["step_000002"] and (kept / checkpoint.MANIFEST).is_file()


def test_what_is_no_directory_is_told_without_the_number_of_an_error(tmp_path):
    (tmp_path / "checkpoints").symlink_to("checkpoints")
    assert taken(tmp_path) == (None, [])
    with pytest.raises(checkpoint.CheckpointError) as told:
        save(tmp_path, 1)
    assert "Errno" not in str(told.value) and "checkpoints" in str(told.value)


@pytest.mark.parametrize("log_file", checkpoint.LOGS)
def test_a_log_that_lost_a_line_is_not_gone_on_from(tmp_path, log_file):
    lines = JsonLines(tmp_path / log_file)
    for step in range(1, 7):
        lines.append({"step": step, "loss": 1 / step})
        save(tmp_path, step, keep=9)
    whole = lines.path.read_bytes()
    rows = whole.splitlines(keepends=True)
    lines.path.write_bytes(whole + b'{"step": 7, "lo')  # torn after the last checkpoint: as every kill may
    assert taken(tmp_path) == ("step_000006", [])
    checkpoint.rewind(tmp_path, checkpoint.newest(tmp_path))
    assert lines.path.read_bytes() == whole
    damages = {
        "lost": (b"".join([*rows[:2], *rows[3:]]), "step_000002"),
        "changed": (whole.replace(b'"step": 5, "loss": 0.2', b'"step": 5, "loss": 0.3'), "step_000004"),
        "torn": (whole[:-4], "step_000005"),
        "zeros after a power cut": (whole[:-60] + bytes(60), "step_000004"),
        "no object": (b"".join([*rows[:3], b"5\n", *rows[4:]]), "step_000003"),
    }
    for damaged, last in damages.values():
        lines.path.write_bytes(damaged)
        found, said = taken(tmp_path)
        assert found == last and all(log_file in sentence for sentence in said)
    lines.path.write_bytes(b"".join([*rows[:2], *rows[3:]]))
    assert ("(no line of step 3)" in taken(tmp_path)[1][0]) == (log_file == "metrics.jsonl")
    lines.path.unlink()
    with pytest.raises(checkpoint.CheckpointError, match=f"{log_file} has changed since .*no other"):
        taken(tmp_path)


class Foreign:
    """What no checkpoint may hold."""


def test_a_state_that_does_not_load_is_one_sentence(tmp_path):
    torch.save({"x": Foreign()}, tmp_path / "state.pt")
    with pytest.raises(checkpoint.CheckpointError, match=r"cannot be loaded.*another version") as error:
        checkpoint.load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("state", [{"format": checkpoint.FORMAT, "step": 4}, [5], {"format": checkpoint.FORMAT}])
def test_a_state_that_is_not_a_runs_is_one_sentence(tmp_path, state):
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(checkpoint.CheckpointError, match=r"has no learner, .*totals;|another version") as error:
        checkpoint.of_run(tmp_path)
    assert "\n" not in str(error.value) and "policy.model=" in str(error.value)


def test_a_state_holds_what_a_resumed_run_reads(tmp_path):
    trainer = Trainer(small_run())
    assert set(checkpoint.STATE) <= checkpoint.of_run(trainer.save(tmp_path, {"seconds": 0.0})).keys()


@pytest.mark.parametrize("name", ["state.pt", "manifest.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, name):
    for step in (1, 2):
        newest = save(tmp_path, step)
    (newest / name).unlink()
    os.mkfifo(newest / name)
    found, said = taken(tmp_path)
    assert found == "step_000001" and said[0].endswith("; step_000001 is used instead")


def test_a_state_of_an_older_version_is_refused_in_one_sentence(tmp_path):
    torch.save({"pipeline": {}}, tmp_path / "state.pt")
    with pytest.raises(
        checkpoint.CheckpointError, match=r"another version of gimbal \(format 1; .*policy.model="
    ) as error:
        checkpoint.load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_run_directory_that_lost_its_checkpoints_is_not_written_over(tmp_path):
    from small import small_run

    from gimbal.runtime.local import run_local

    log(tmp_path, 1, 2, 3)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="3 steps on record, but there is no checkpoint to continue from"):
        run_local(small_run(checkpoint_every=2), tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_without_its_manifest_is_passed_over_with_a_word(tmp_path):
    save(tmp_path, 1)
    newer = save(tmp_path, 2)
    (newer / "manifest.json").unlink()
    name, said = taken(tmp_path)
    assert (
        name == "step_000001"
        and "step_000002 is not a complete checkpoint: it has no manifest.json; step_000001 is" in said[0]
    )
    (tmp_path / "checkpoints" / "step_000001" / "manifest.json").unlink()
    name, said = taken(tmp_path)
    assert name is None and said[0].endswith("it has no manifest.json; the run starts again from the beginning")


def test_what_has_no_room_says_what_to_type(tmp_path):
    """Whoever wrote it: Python, whose error names no file, or safetensors, whose error is no OSError."""
    for number, words in ((errno.ENOSPC, "the disk is full; free some space"), (errno.EDQUOT, "quota is used up")):
        for error in (OSError(number, "x"), RuntimeError(f"Error while serializing: I/O error: x (os error {number})")):
            with pytest.raises(OSError, match="model") as caught, durable.named(tmp_path / "model"):
                raise error
            assert sentence(caught.value).startswith(f"{tmp_path / 'model'} could not be written:")
            assert words in sentence(caught.value) and "--runs" in sentence(caught.value)
    with pytest.raises(OSError, match="model") as caught, durable.named(tmp_path / "model"):
        raise OSError(errno.EFBIG, "x")
    assert "its file system takes no file of this size" in sentence(caught.value)
    with pytest.raises(RuntimeError, match="something else"), durable.named(tmp_path / "model"):
        raise RuntimeError("something else")
    assert not durable.remedy(PermissionError(errno.EACCES, "x")), "that speaks for itself"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:25],
        lambda text: "\0\0",
        lambda text: "[1, 2]",
        lambda text: "recipe: x\n",
        lambda text: "recipe: x\nrun: 5\n",
        None,
    ],
)
def test_a_damaged_recipe_is_restored_from_the_newest_checkpoint_that_has_it(tmp_path, damage):
    recipe, said = tmp_path / "recipe.yaml", []
    whole = "recipe: x\nrun:\n  steps: 3\n  seed: 1\n"
    recipe.write_text(whole)
    save(tmp_path, 1)
    newer = save(tmp_path, 2)
    (newer / "recipe.yaml").write_text("spoilt too")
    checkpoint.restore_recipe(tmp_path, said.append)
    recipe.write_text(edited := whole.replace("3", "9"))
    checkpoint.restore_recipe(tmp_path, said.append)
    assert not said and recipe.read_text() == edited, "who edits it means it"
    if damage is None:
        recipe.unlink()
    else:
        recipe.write_text(damage(whole))
    checkpoint.restore_recipe(tmp_path, said.append)
    assert recipe.read_text() == whole and len(said) == 1
    assert "restored as it was at step 1, from" in said[0]
    aside = tmp_path / "recipe.yaml.damaged"
    assert aside.is_file() == (damage is not None and bool(damage(whole))) == (str(aside) in said[0])
    (tmp_path / "checkpoints" / "step_000001" / "recipe.yaml").unlink()
    recipe.write_text("{{")
    with pytest.raises(ValueError, match=r"recipe.yaml is not readable as yaml.*no checkpoint has a copy of it"):
        checkpoint.restore_recipe(tmp_path, said.append)


def test_what_could_not_be_written_is_named(tmp_path, monkeypatch):
    """Python leaves the file's name out of an error of a write, and torch says nothing of a disk."""
    log(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*metrics\.jsonl'"):
            log(tmp_path, 2)
        with pytest.raises(OSError, match=r"File too large: '.*summary\.json'"):
            durable.write(tmp_path / "summary.json", "x" * 100)
        with pytest.raises(OSError, match=r"page.html") as caught, durable.named(tmp_path / "page.html"):
            (tmp_path / "page.html").write_text("x" * 100)
        said = sentence(caught.value)
        assert said.startswith(
            f"{tmp_path / 'page.html'} could not be written: this shell allows no file above 2e-05 MB"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    def full(*args, **kwargs):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(checkpoint.CheckpointError, match=r"could not be written \(.*state\.pt: the disk is full, or"):
        save(tmp_path, 1)
