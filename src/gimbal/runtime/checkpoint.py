"""Checkpoints: complete, atomic, checked.

    checkpoints/step_000025/
        model/           what `from_pretrained` (or the policy's own loader) reads
        state.pt         everything else: learner, pipeline, engine in flight, proof, counters
        recipe.yaml      of the run at this step
        manifest.json    size and digest of every file, and of the run's logs as they were; written last

A checkpoint is written under a temporary name and renamed once it is completely on disk; only then are older ones removed, so
that one is always complete. A step saved again becomes step_000025.2, and the first stays until that is complete. A checkpoint
whose digests do not match, or whose logs have lost a line since, is skipped with a message, and the previous one is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gimbal import durable
from gimbal.config import RECIPE_FILE, read_file, run_of
from gimbal.config.own import wrong
from gimbal.report.files import METRICS, ROLLOUTS, SCHEDULE, JsonLines

if TYPE_CHECKING:
    import torch

    from gimbal.dataflow.base import AbstractObserver
    from gimbal.learning.base import AbstractLearner
    from gimbal.policies.base import AbstractPolicy

MANIFEST = "manifest.json"
# Of state.pt; one more whenever what is in it changes. 2: groups of episodes. 3: named steps of an environment.
FORMAT = 4
LOGS = (METRICS, ROLLOUTS, SCHEDULE)  # logs of the run, whose lengths a checkpoint records
NAME = re.compile(r"step_(\d+)(?:\.(\d+))?")
STATE = ("learner", "pipeline", "store", "sync", "proof", "totals")  # keys that every state.pt has
PARTIAL = ".partial_"
CHUNK = 1 << 20
MOST_SAID = 120  # characters of why a state cannot be saved


class CheckpointError(ValueError):
    """A checkpoint could not be written, or differs from what was written."""


def save(
    directory: Path,
    step: int,
    policy: AbstractPolicy | AbstractLearner,
    state: Mapping[str, Any],
    keep: int,
    every: int = 0,
) -> Path:
    """Write checkpoints/step_N under ``directory`` and remove all but the newest ``keep`` (at least 1) and, if ``every`` is above 0,
    those at its multiples.

    Later steps are removed too: the run has gone back from them.
    """
    import torch  # late, here and below: finding checkpoints and checking their files need none

    root = directory / "checkpoints"
    partial = root / f"{PARTIAL}{step:06d}"
    try:
        _remove(partial)
        (partial / "model").mkdir(parents=True)
        with durable.named(partial / "model"):
            policy.save(partial / "model")
        if (recipe := directory / RECIPE_FILE).is_file():
            shutil.copyfile(recipe, partial / RECIPE_FILE)
        with durable.named(partial / "state.pt"):
            torch.save({**state, "format": FORMAT}, partial / "state.pt")
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        manifest = {
            "step": step,
            "files": {str(path.relative_to(partial)): _digest(path) for path in files},
            "logs": {name: _logged(directory / name) for name in LOGS},
        }
        # Last of all files: a directory without it is not a checkpoint, whatever else a killed process left in it.
        with durable.named(partial / MANIFEST):
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))
        # A rename may reach the disk before the bytes; after a power cut, files under the final name could be empty.
        durable.sync_tree(partial)
        final = root / _free_name(root, step)
        partial.rename(final)
        for place in (root, directory, directory.parent):  # the first save creates the first of them
            durable.sync(place)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as an obscure RuntimeError of its zip writer.
        why = (
            durable.remedy(error) or durable.obstacle(error) or error
            if isinstance(error, OSError)
            else f"{partial / 'state.pt'}: the disk is full, or the file size limit is too low (ulimit -f)"
        )
        with suppress(OSError):  # the obstacle may be a parent
            _remove(partial)
        previous = newest(directory)
        kept = f"{previous} is untouched, and the run can be resumed" if previous else "there is no earlier one"
        raise CheckpointError(f"the checkpoint of step {step} could not be written ({why}); {kept}") from error
    # Only now: if the older ones went first, a full disk at this moment would leave none.
    _remove_others(root, step, keep, every)
    return final


def savable(*parts: AbstractObserver) -> None:
    """Refuse a curriculum or a budget whose state a checkpoint cannot hold and give back, before a run depends on it."""
    import torch

    from gimbal.dataflow.base import AbstractCurriculumAround

    for part in parts:
        inner = part
        while isinstance(inner, AbstractCurriculumAround):
            inner = inner.order
        for one in dict.fromkeys((inner, part)):  # the inner one first: it is named if it is the cause
            state, held, known = one.state_dict(), io.BytesIO(), _known()
            wanted = "plain numbers, text, lists, dicts, tensors and gimbal's records, which a checkpoint can hold"
            if not isinstance(state, dict):
                raise wrong(one, "state_dict", state, f"a dict of {wanted}")
            try:
                torch.save(state, held)
                held.seek(0)
                with torch.serialization.safe_globals(known):
                    torch.load(held, weights_only=True)
            except OSError:  # a full disk, which is told when the checkpoint is written
                continue
            except Exception as error:  # whatever a foreign object raises when it is pickled
                why = " ".join(str(error).split())[:MOST_SAID]
                raise wrong(one, "state_dict", state, f"a dict of {wanted} ({type(error).__name__}: {why})") from error


def newest_whole(directory: Path, note: Callable[[str], None], part: str = "", most: int | None = None) -> Path | None:
    """The newest checkpoint whose files are intact (checking only names that begin with ``part``, and of files above ``most`` bytes
    only that they are there); None without any.

    ``note`` receives why newer ones are skipped. Raises CheckpointError if there are some and all are damaged.
    """
    return _first(directory, note, lambda path: spoilt(path, part, most), most)


def resumable(directory: Path, note: Callable[[str], None], most: int | None = None) -> Path | None:
    """Like ``newest_whole``, but the run's logs must also still begin as they did when it was written. Of files above ``most`` bytes
    only that they are there is checked, which takes no time."""
    return _first(directory, note, lambda path: spoilt(path, "", most) or _logs_changed(directory, path, most), most)


def rewind(directory: Path, checkpoint: Path | None) -> None:
    """Remove what was logged after this checkpoint (None: everything): a resumed run logs it again."""
    lengths = {name: log["bytes"] for name, log in _manifest(checkpoint)["logs"].items()} if checkpoint else {}
    for name in LOGS:
        JsonLines(directory / name).cut(lengths.get(name, 0))


def load(checkpoint: Path, device: torch.device | None = None) -> dict[str, Any]:
    """The saved state of an intact checkpoint."""
    import torch

    try:
        with torch.serialization.safe_globals(_known()):
            # A pickle can run anything; ours may contain only these records.
            state = torch.load(checkpoint / "state.pt", map_location=device, weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{checkpoint} cannot be loaded ({' '.join(str(error).split())[:200]}); it may be from another version of gimbal or torch"
        ) from error
    if (found := state.get("format", 1) if isinstance(state, dict) else 0) != FORMAT:
        raise CheckpointError(
            f"{checkpoint} was written by another version of gimbal (format {found}; this one reads {FORMAT}): resume with that one, "
            f"or start a new run from its weights: policy.model={checkpoint / 'model'}"
        )
    return state


def of_run(checkpoint: Path) -> dict[str, Any]:
    """The state that a resumed run starts from."""
    state = load(checkpoint)
    if gone := [name for name in STATE if not isinstance(state.get(name), Mapping)]:
        raise CheckpointError(
            f"{checkpoint / 'state.pt'} is not the state of a run: it has no {', '.join(gone)}; start a new run from its weights: "
            f"policy.model={checkpoint / 'model'}"
        )
    return state


def all_of(directory: Path) -> list[Path]:
    """The run's finished checkpoints, oldest first: by step, then in the order of saving."""
    return sorted((path for path in _named(directory / "checkpoints") if (path / MANIFEST).is_file()), key=_place)


def spoilt(checkpoint: Path, part: str, most: int | None = None) -> str:
    """A message on what is wrong with its files, or ""; those above ``most`` bytes are not read."""
    try:
        for name, digest in _manifest(checkpoint)["files"].items():
            if not name.startswith(part) or (most is not None and (checkpoint / name).stat().st_size > most):
                continue
            if _digest(checkpoint / name) != digest:
                return f"{checkpoint / name} differs from what was written: the checkpoint is corrupted"
    except (OSError, ValueError) as error:
        return f"{checkpoint} is not a complete checkpoint ({error})"
    return ""


def restore_recipe(directory: Path, note: Callable[[str], None]) -> None:
    """Restore a run's lost or damaged recipe.yaml from the newest checkpoint that has it; the damaged file stays next to it.

    A file that only begins like the copy was cut short, even if it can be read. Raises ValueError if no checkpoint has one.
    """
    path = directory / RECIPE_FILE
    copies = (one / RECIPE_FILE for one in reversed(all_of(directory)) if not spoilt(one, RECIPE_FILE))
    copy = next((file for file in copies if file.is_file()), None)
    there = path.read_bytes() if path.is_file() else b""
    whole = b"" if copy is None else copy.read_bytes()
    fault = f"{path} ends in the middle" if there and there != whole and whole.startswith(there) else ""
    try:
        run_of(path, read_file(path))
        if not fault:
            return
    except ValueError as error:
        fault = str(error)
    if copy is None:
        raise ValueError(f"{fault}; no checkpoint has a copy of it: put the file back, or start a new run")
    aside = path.with_name(f"{RECIPE_FILE}.damaged")
    if there:
        path.replace(aside)
    durable.write(path, copy.read_text(encoding="utf-8"))
    kept = f"; the damaged file is now {aside}" if there else ""
    note(f"{fault}; restored as it was at step {step_of(copy.parent)}, from {copy}{kept}")


def newest(directory: Path) -> Path | None:
    """The last of ``all_of``, unread."""
    return next(reversed(all_of(directory)), None)


def _first(
    directory: Path, note: Callable[[str], None], fault: Callable[[Path], str], most: int | None = None
) -> Path | None:
    found, passed = sorted(_named(directory / "checkpoints"), key=_place), list[str]()
    for path in reversed(found):
        if not (
            said := fault(path)
            if (path / MANIFEST).is_file()
            else f"{path} is not a complete checkpoint: it has no {MANIFEST}"
        ):
            for sentence in passed:
                note(f"{sentence}; {path.name} is used instead")
            return path
        passed.append(said)
    if found and not all_of(directory):
        note(f"{'; '.join(passed)}; the run starts again from the beginning")
    elif passed:
        way = f"gimbal train --from {directory} starts a new run"
        # The state may be lost but the weights intact: then a new run can use them.
        model = next((path / "model" for path in reversed(found) if not spoilt(path, "model", most)), None)
        raise CheckpointError(
            f"{'; '.join(passed)}; there is no other checkpoint to continue from. {way}"
            + (f", with policy.model={model} from its weights" if model else "")
        )
    return None


def _logs_changed(directory: Path, checkpoint: Path, most: int | None) -> str:
    """A message on which log changed other than by added lines, or ""; one that was above ``most`` bytes may only not be shorter."""
    manifest = _manifest(checkpoint)
    for name, was in manifest["logs"].items():
        path = directory / name
        large = most is not None and was["bytes"] > most
        longer = large and path.is_file() and path.stat().st_size >= was["bytes"]
        if longer or _logged(path, was["bytes"]) == was:
            continue
        told = ""
        if name == METRICS:
            # The digest says that something changed; the missing step is what a user can act on.
            there = {row.get("step") for row in JsonLines(path).read()}
            lost = [step for step in range(1, manifest["step"] + 1) if step not in there]
            told = f" (no line of step {lost[0]})" if lost else ""
        return f"{path} has changed since {checkpoint.name} was written: lines were lost or edited{told}"
    return ""


def _manifest(checkpoint: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError) as error:  # RecursionError for a file nested too deeply
        raise CheckpointError(f"its {MANIFEST} is not readable: {error}") from error
    match manifest:
        case {"step": int() as step, "files": dict() as files, "logs": dict() as logs}:
            sized = all(
                isinstance(log, dict) and isinstance(log.get("bytes"), int) and log["bytes"] >= 0
                for log in logs.values()
            )
            # One without a log would let a resume cut that log to nothing; one without a file, load it unchecked.
            listed = "state.pt" in files and all(name in logs for name in LOGS)
            if sized and listed and step == step_of(checkpoint) and all(isinstance(it, str) for it in files.values()):
                return manifest
    raise CheckpointError(f"its {MANIFEST} was damaged, or not written by this version of gimbal")


def _named(root: Path) -> list[Path]:
    # Only directories: anything else of such a name is the user's own.
    return (
        [path for path in root.glob("step_*") if NAME.fullmatch(path.name) and path.is_dir()] if root.is_dir() else []
    )


def step_of(checkpoint: Path) -> int:
    """The step it was written after, which is the version of its weights."""
    return _place(checkpoint)[0]


def _place(checkpoint: Path) -> tuple[int, int]:
    """(step, how many times it was saved)."""
    found = NAME.fullmatch(checkpoint.name)
    assert found is not None, checkpoint
    return int(found[1]), int(found[2] or 1)


def _free_name(root: Path, step: int) -> str:
    # By name alone, because a file or a broken link of that name is in the way too.
    there = [path for path in root.iterdir() if NAME.fullmatch(path.name)]
    taken = [number for at, number in map(_place, there) if at == step]
    return f"step_{step:06d}" + (f".{max(taken) + 1}" if taken else "")


def _remove_others(root: Path, step: int, keep: int, every: int) -> None:
    """All but the last saving of each of the newest ``keep`` steps up to this one, and of each ``every`` steps.

    A remnant of a removal or a save goes too.
    """
    last = {_place(path)[0]: path for path in all_of(root.parent) if _place(path)[0] <= step}
    kept = [last[at] for at in sorted(last)][-max(1, keep) :] + [last[at] for at in last if every and at % every == 0]
    for path in [*_named(root), *root.glob(f"{PARTIAL}*")]:
        if path not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a directory or what is in its place; for a link, only the link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    if (path / MANIFEST).is_file():
        (path / MANIFEST).unlink()  # first, so that a half-removed directory is not a checkpoint
    shutil.rmtree(path, ignore_errors=True)


def _known() -> list[Any]:
    """The classes that a state may hold: records, and every family's record of decisions, and of how they are drawn, that has been
    imported, which is what a live policy may have put there."""
    from gimbal import records
    from gimbal.engines.base import Finished, Request
    from gimbal.environments.base import Moment
    from gimbal.environments.games import Turn
    from gimbal.workflows.base import Attempt, EncodedPrompt
    from gimbal.workflows.rows import Grown

    return [
        *(
            Request,
            Finished,
            records.Episode,
            records.Acted,
            records.Drop,
            records.Rollout,
            records.Group,
            records.Task,
        ),
        *(Attempt, Moment, Grown, EncodedPrompt, Turn),
        *records.AbstractDecisions.__subclasses__(),
        *records.AbstractSampling.__subclasses__(),
    ]


def _digest(path: Path) -> str:
    durable.regular(path)  # opening a pipe would wait for a writer
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _logged(path: Path, size: int | None = None) -> dict[str, Any]:
    """Size and digest of a log, or of its first ``size`` bytes; a missing log counts as empty. The digested bytes are on disk."""
    hasher, count = hashlib.blake2b(digest_size=16), 0
    if path.is_file():
        if size is None:
            # Else the manifest could promise lines that a power cut takes back, and the checkpoint would be refused for it.
            durable.sync(path)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK if size is None else min(CHUNK, size - count)):
                hasher.update(chunk)
                count += len(chunk)
    return {"bytes": count, "digest": hasher.hexdigest()}


def nothing_lost(directory: Path, checkpoint_every: int) -> None:
    """A start at step 0 overwrites recorded steps: refused if there are more than a run has before its first checkpoint."""
    steps = len(JsonLines(directory / METRICS).read())
    if steps > checkpoint_every:
        raise ValueError(
            f"{directory / METRICS} has {steps} steps on record, but there is no checkpoint to continue from: put checkpoints/ back, "
            f"or start a new run: gimbal train --from {directory}"
        )
