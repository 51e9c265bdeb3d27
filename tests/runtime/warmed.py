"""Imported by the process that killing.py forks its children from: a run, for what it imports late."""

import contextlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from small import denoising_run, masked_run, small_run

from gimbal.runtime.local import run_local

torch.set_num_threads(1)
with (
    open(os.devnull, "w") as nowhere,
    contextlib.redirect_stdout(nowhere),
    tempfile.TemporaryDirectory() as directory,
):
    run_local(small_run(steps=1, checkpoint_every=1, record_every=1), Path(directory))
    run_local(masked_run(steps=1), Path(directory) / "masked")
    if find_spec("diffusers"):
        run_local(denoising_run(steps=1), Path(directory) / "denoising")
