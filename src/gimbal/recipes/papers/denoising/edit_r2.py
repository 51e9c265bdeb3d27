"""Edit-R2's filter on streams of digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.unspoilt import Unspoilt
from gimbal.recipes.papers.denoising.streams import streams
from gimbal.runtime.run import UpdateRun


def edit_r2() -> UpdateRun:
    """Edit-R2's filter (arXiv:2606.05950) in streams: a block that follows a block of the wrong digit does not train.

    A session of edits is a stream here, each block after the one before. Left out: the instructions, and the policy's text that says
    which of them still hold (`unigrpo` has words and pictures in one episode). Not shown here: models that edit pictures by
    instructions, and a vision-language model as judge. No guidance.
    """
    return replace(streams(), filters=(Unspoilt(),))
