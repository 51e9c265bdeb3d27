"""An episode of a control policy as a short film, for the report."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Shaped

from gimbal.config.own import raised
from gimbal.environments.gym import Environment
from gimbal.environments.recording import RecordedEpisode
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Task
from gimbal.runtime.playing import recorded
from gimbal.runtime.run import AbstractRun

FRAMES, SIDE = 120, 240  # most images, and pixels of the longer side: a few hundred kilobytes at most
LONGEST = 8.0  # seconds; a longer episode is shown faster than it was
OWN = "Give its __init__ render_mode=None, and have render return uint8 of [height, width, 3] for 'rgb_array'"
REGISTERED = (
    "An environment must take render_mode='rgb_array'; gymnasium's own draw with pygame (pip install 'gymnasium[classic-control]'), "
    "and MuJoCo's without a screen by MUJOCO_GL=egl or osmesa"
)
QUICKEST = 0.02  # seconds of an image, below which browsers slow a film down


def film(run: AbstractRun, policy: AbstractPolicy, seed: int = 0) -> bytes:
    """One episode of the policy's mode, as an animated WebP.

    The episode is played first, and then its actions once more in an environment that draws itself, so that what is filmed is what was
    played. ValueError where that cannot be had.
    """
    recording = recorded(run, policy, episodes=1, seed=seed, temperature=0.0)
    return written(*filmed(recording.source, recording.episodes[0]))


def filmed(source: str, episode: RecordedEpisode) -> tuple[list[Shaped[np.ndarray, "H W 3"]], float]:
    """Images of an episode, at most ``FRAMES``, evenly apart and with its first and last moment; and the seconds of each."""
    assert episode.seed is not None, "an episode is begun again by its seed"
    last, count = episode.length, min(FRAMES, episode.length + 1)
    shown = {round(place * last / (count - 1)) for place in range(count)}
    images = []
    try:
        live = Environment(source, drawn=True)
        live.reset(Task(id="film", source=source, seed=episode.seed), 0)
        for at in range(last + 1):
            if at in shown:
                images.append(live.image())
            if at < last and not np.isclose(
                live.step(episode.action_SA[at]).reward, episode.reward_S[at], rtol=1e-4, atol=1e-5
            ):
                raise ValueError(f"{source} earns something else when action {at} is done again")
        live.close()
        if len({image.shape for image in images}) > 1:
            raise ValueError(f"{source}.render returns images of several sizes")
    except Exception as error:  # whatever an environment, or what it draws with, raises
        why = str(error) if str(error).startswith(source) else raised(error)
        own = ":" in source
        raise ValueError(f"{source} cannot be filmed: {why}. {OWN if own else REGISTERED}") from error
    return images, max(QUICKEST, min(LONGEST, last / live.pace) / len(images))


def written(images: Sequence[Shaped[np.ndarray, "H W 3"]], seconds: float) -> bytes:
    try:
        from PIL import Image  # late: few runs need it
    except ImportError as error:
        raise ValueError("films are written by Pillow, which is not installed: pip install pillow") from error
    shots = [Image.fromarray(image) for image in images]
    for shot in shots:
        shot.thumbnail((SIDE, SIDE))
    first, *others = shots
    first.save(
        file := io.BytesIO(), "WEBP", save_all=True, append_images=others, duration=round(1000 * seconds), quality=70
    )
    return file.getvalue()
