"""Finished samples from elsewhere: what a discriminator is shown as real, and what a stream follows in teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import AbstractPart, Advice, Composition, Refusal, Verdict
from gimbal.environments.conditions import Conditions, listed
from gimbal.nested import walk
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import NO_LABEL
from gimbal.rewards import digits

DIGITS = "digits"
FARTHEST = 10.0  # numbers that have no sign and reach beyond this are pixels of files, not what a network draws


@dataclass(frozen=True, kw_only=True)
class RealSamples(AbstractPart):
    """Finished samples from elsewhere.

    ``file`` is an .npz file with ``samples`` [K, channels, height, width], in the range of the policy's, and, where tasks ask for
    classes, ``labels`` [K]; or "digits", scikit-learn's. One is drawn for each of the policy's, with replacement: of the class
    that was asked for, or of all where none was. ``only`` keeps the samples of these classes.
    """

    file: str = DIGITS
    only: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.only)) < len(self.only):
            raise ValueError(f"RealSamples.only is {self.only}; name each class once")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        here = next((path for path, part in walk(whole.run) if part is self), "RealSamples")
        try:
            sample_KD, label_K = self.kept(here)
        except ValueError as error:
            yield Refusal(str(error))
            return
        policy, tasks = whole.run.policy, whole.run.tasks
        if isinstance(policy, Denoiser) and (shape := policy.sample_shape) and (why := self._misfit(sample_KD, shape)):
            yield Refusal(f"{why}: set {here}.file=FILE.npz, with samples of that shape")
        if self.file != DIGITS and float(sample_KD.min()) >= 0:
            yield Advice(
                f"{self.file} has no number below 0, and most models draw from -1 to 1: where this one does, give it 2 * x - 1"
            )
        missing = sorted(set(tasks.labels) - set(label_K.tolist())) if isinstance(tasks, Conditions) else []
        if missing:
            none = " (it has no labels)" if bool((label_K == NO_LABEL).all()) else ""
            yield Refusal(
                f"tasks.labels asks for class {missing[0]}, of which {self.file} has no sample that is shown{none}: set "
                f"tasks.labels={listed(set(tasks.labels) & set(label_K.tolist()))}, or add samples and labels of it"
            )

    def kept(self, here: str = "RealSamples") -> tuple[Float[Tensor, "K ..."], Int[Tensor, " K"]]:
        """All that may be drawn, and their labels. ``here``: its place in the run, for a refusal."""
        sample_KD, label_K = read(self.file)
        if not self.only:
            return sample_KD, label_K
        if missing := sorted(set(self.only) - set(label_K.tolist())):
            raise ValueError(
                f"{here}.only names class {missing[0]}, of which {self.file} has no sample: set "
                f"{here}.only={listed(set(self.only) & set(label_K.tolist()))}, or add samples and labels of it"
            )
        kept_K = torch.isin(label_K, torch.tensor(self.only))
        return sample_KD[kept_K], label_K[kept_K]

    def drawn(
        self, label_N: Int[Tensor, " N"], shape: tuple[int, ...], generator: np.random.Generator
    ) -> Float[Tensor, "N ..."]:
        """One for each row."""
        sample_KD, label_K = self.kept()
        if why := self._misfit(sample_KD, shape):
            raise ValueError(f"{why}: set file=FILE.npz, with samples of that shape")
        place_N = torch.from_numpy(generator.random(len(label_N)))
        row_N = torch.empty(len(label_N), dtype=torch.long)
        for label in label_N.unique().tolist():
            own_K = torch.arange(len(label_K)) if label == NO_LABEL else (label_K == label).nonzero()[:, 0]
            if not len(own_K):
                raise ValueError(
                    f"a task asks for class {label}, of which {self.file} has no sample: leave it out of the tasks, or add samples "
                    "and labels of it"
                )
            asked_N = label_N == label
            row_N[asked_N] = own_K[(place_N[asked_N] * len(own_K)).long()]
        return sample_KD[row_N].reshape(-1, *shape)

    def _misfit(self, sample_KD: Tensor, shape: tuple[int, ...]) -> str:
        """Why they are no samples as the policy draws them; "" if they are."""
        own = tuple(sample_KD.shape[1:])
        if own == shape or (self.file == DIGITS and sample_KD[0].numel() == np.prod(shape)):
            return ""
        return f"the samples of {self.file} have the shape {(1, 8, 8) if self.file == DIGITS else own}, and the policy's {shape}"


@cache
def read(file: str) -> tuple[Float[Tensor, "K ..."], Int[Tensor, " K"]]:
    """Samples and their labels, NO_LABEL where the file has none. ValueError says what is wrong with it."""
    if file == DIGITS:
        return digits.digits()
    if not Path(file).is_file():
        raise ValueError(f"there is no file {file} of real samples: name an .npz file, or {DIGITS}")
    try:
        with np.load(file, allow_pickle=False) as found:
            given = found["samples"]
            sample_KD = torch.from_numpy(np.asarray(given, dtype="float32"))
            labels = found["labels"] if "labels" in found else np.full(len(sample_KD), NO_LABEL)
            label_K = torch.from_numpy(np.asarray(labels).astype("int64", casting="same_kind"))
    except (KeyError, ValueError, TypeError, OSError, EOFError, AttributeError, BadZipFile) as error:
        raise ValueError(
            f"{file} cannot be read as real samples ({error}): write it by np.savez(FILE, samples=..., labels=...), floats [K, C, H, "
            "W] and whole numbers [K]"
        ) from error
    if given.dtype.kind in "ui":
        raise ValueError(
            f"{file} has samples in whole numbers ({given.dtype}), and a model draws in another range: give them in the model's, as "
            "floats, such as x / 127.5 - 1 for the -1 to 1 of most"
        )
    if sample_KD.ndim != 4 or not len(sample_KD) or label_K.shape != sample_KD.shape[:1]:
        raise ValueError(
            f"{file} has samples of the shape {tuple(sample_KD.shape)} and labels {tuple(label_K.shape)}: they must be [K, C, H, W] "
            "and [K]"
        )
    if not bool(sample_KD.isfinite().all()):
        raise ValueError(f"{file} has samples with numbers that are not finite: leave these out")
    if float(sample_KD.min()) >= 0 and float(sample_KD.max()) > FARTHEST:
        raise ValueError(
            f"{file} has samples from {float(sample_KD.min()):g} to {float(sample_KD.max()):g}, as pixels in files are, and a model "
            "draws in another range: give them in the model's, such as x / 127.5 - 1 for the -1 to 1 of most"
        )
    return sample_KD, label_K
