"""Without any extra: what an install of the package alone can do. Here all extras are installed, so they are hidden."""

import subprocess
import sys

import pytest

TOOLS = ("gymnasium", "h5py", "pyspiel", "diffusers", "sklearn", "pydantic_monty", "datasets", "openai")
SERVICES = ("ray", "peft", "bitsandbytes", "starlette", "uvicorn", "wandb", "trackio")
HIDDEN = f"""
import sys
class Hides:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {TOOLS + SERVICES}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hides())
from gimbal import cli
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["demo", "grpo"])
def test_recipes_of_text_need_no_extra(recipe):
    command = [sys.executable, "-c", HIDDEN, "train", recipe, "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
