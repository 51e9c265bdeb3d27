"""An episode that is filmed is the one that the policy plays."""

import io
from dataclasses import replace

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

from gimbal import cli, config, recipes
from gimbal.config import Text
from gimbal.environments.recording import RecordedEpisode
from gimbal.report.arms import RunOnDisk
from gimbal.runtime.film import FRAMES, filmed, written
from gimbal.runtime.local import run_local

WALK = '''
import gymnasium, numpy as np

class Walk(gymnasium.Env):
    """A point on a line, drawn as a bar as far as it has come; 300 steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    observation_space, action_space = gymnasium.spaces.Box(-1e3, 1e3, (1,)), gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = 0.0, 0
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at, self.steps = self.at + 0.5 + 0.5 * abs(float(action[0])), self.steps + 1
        return np.array([self.at], np.float32), self.earned(), False, self.steps == 300, {}

    def earned(self):
        return self.at

    def render(self):
        image = np.zeros((8, 60, 3), np.uint8)
        image[:, : int(self.at) // 5] = 255
        return image

class Blind(gymnasium.Env):
    observation_space, action_space = Walk.observation_space, Walk.action_space
    reset, step, earned = Walk.reset, Walk.step, Walk.earned

class Numbers(Walk):
    def render(self):
        return [1, 2]

class Growing(Walk):
    def render(self):
        return np.zeros((8, 8 + self.steps, 3), np.uint8)

class Brushless(Walk):
    def render(self):
        raise ValueError("no brush")

class Fickle(Walk):
    def earned(self):
        return self.at if self.render_mode is None else 2 * self.at
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk.py").write_text(WALK)
    return tmp_path


def walked(steps):
    """Each action a unit forward."""
    place_S = np.arange(1.0, steps + 1)
    seen_SO = np.concatenate([[0.0], place_S])[:, None].astype(np.float32)
    return RecordedEpisode(
        reward_S=place_S, action_SA=np.ones((steps, 1), np.float32), observation_SO=seen_SO, terminated=False, seed=0
    )


@pytest.mark.parametrize(("steps", "count"), [(3, 4), (100, 101), (300, FRAMES)])
def test_images_are_of_the_first_to_the_last_moment_evenly_apart(here, steps, count):
    images, seconds = filmed("walk.py:Walk", walked(steps))
    far = [int(image[0, :, 0].sum()) // 255 for image in images]
    assert len(images) == count and far[0] == 0 and far[-1] == steps // 5 and far == sorted(far)
    assert seconds == pytest.approx(max(0.02, min(8, steps / 50) / count))


def test_a_film_has_all_its_images(here):
    images, seconds = filmed("walk.py:Walk", walked(100))
    film = Image.open(io.BytesIO(written(images, seconds)))
    assert film.format == "WEBP" and film.n_frames > 5 and film.size == (60, 8)
    film.seek(film.n_frames - 1)
    assert abs(int((np.asarray(film.convert("L"))[4] > 127).sum()) - 20) <= 1
    tall = written([np.zeros((900, 300, 3), np.uint8)] * 2, 0.1)
    assert Image.open(io.BytesIO(tall)).size == (80, 240)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Blind", "walk.py:Blind raises TypeError: .*takes no arguments"),
        ("Numbers", r"render returned int64 of shape \[2\]; it must return uint8"),
        ("Growing", "render returns images of several sizes"),
        ("Fickle", "earns something else when action 0 is done again"),
        ("Brushless", r"ValueError: no brush.* line 44"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_sentence(here, name, said):
    with pytest.raises(ValueError, match=rf"walk.py:{name} cannot be filmed: .*{said}.*render_mode=None"):
        filmed(f"walk.py:{name}", walked(3))


def test_the_page_of_a_run_shows_an_episode_of_its_policy(single_thread, here, capsys):
    changes = {"environment": Text("walk.py:Walk"), "steps": 2, "held_out": Text("none")}
    run = replace(recipes.load("sac", changes), threads=1)
    run_local(run, here / "runs" / "walk")
    config.save(config.dump(run, "sac"), here / "runs" / "walk" / config.RECIPE_FILE)
    capsys.readouterr()
    assert cli.main(["report", "walk", "--film"]) == 0
    film = here / "runs" / "walk" / "film.webp"
    assert Image.open(film).n_frames > 1

    def shown():
        assert cli.main(["report", "walk"]) == 0
        return RunOnDisk.read(here / "runs" / "walk").film.startswith("data:image/webp")

    assert shown()
    (here / "runs" / "walk" / "metrics.jsonl").touch()
    assert not shown(), "the run has gone on since"
    film.unlink()
    assert not shown()


def test_a_run_of_text_has_no_episode_to_film(single_thread, here, capsys):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent))
    from small import small_run

    run = small_run(steps=1)
    run_local(run, here / "runs" / "text")
    config.save(config.dump(run, "grpo"), here / "runs" / "text" / config.RECIPE_FILE)
    capsys.readouterr()
    assert cli.main(["report", "text", "--film"]) == 2
    assert "only episodes of environments can be" in capsys.readouterr().err
