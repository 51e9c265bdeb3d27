"""A resumed run says which of the user's own files are not as they were."""

from dataclasses import replace
from pathlib import Path

import pytest
from small import small_run

from gimbal.config import override
from gimbal.environments.gym import Gymnasium
from gimbal.runtime.sources import digests, edited


def test_each_file_that_a_part_comes_from_or_names(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text((Path(__file__).parent.parent / "users" / "broken.py").read_text())
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1"}\n')
    (tmp_path / "rew.py").write_text("def score(completions): return [0.0 for _ in completions]\n")
    own = {"workflow": f"Dialogue(tool={broken}:Tool())", "rewards": f"{tmp_path}/rew.py:score"}
    run = override(small_run(), own | {"tasks": f"{tmp_path}/rows.jsonl"})
    before = digests(run)
    assert {"broken.py", "rew.py", "rows.jsonl"} <= {Path(path).name for path in before}
    assert not any("src/gimbal" in path for path in before), "what comes with gimbal is its version's to say"
    assert edited({"sources": before}, digests(run)) == [] == edited(None, before)
    broken.write_text(broken.read_text() + "\n")
    (tmp_path / "rew.py").write_text("")
    assert edited({"sources": before}, digests(run)) == [
        "broken.py, rew.py were edited since the checkpoint: it is no longer the same run, so do not compare it as one"
    ]


def test_the_file_of_an_environment_with_settings(tmp_path):
    place = tmp_path / "cart.py"
    place.write_text("class Cart: ...\n")
    run = replace(small_run(), tasks=Gymnasium(environment=f"{place}:Cart@slow=0.01"))
    assert str(place) in digests(run)


def test_links_in_a_circle_are_no_file(tmp_path):
    (tmp_path / "rows.jsonl").symlink_to("rows.jsonl")
    with pytest.raises(ValueError, match="there is no file"):
        digests(override(small_run(), {"tasks": f"{tmp_path}/rows.jsonl"}))
