"""The table of docs/scale.md on roles is what the simulator says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_table_on_roles_is_computed():
    # In a process of its own: a million events, each with its shapes checked, would take minutes.
    command = [sys.executable, str(ROOT / "benchmarks/crew.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "\n".join(lines) in (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    even, balanced = ([float(row[2]) for row in cells[at : at + 3]] for at in (0, 3))
    assert 0.8 < even[1] / even[0] < 0.87 and 0.8 < balanced[0] / even[0] < 0.91, "a sixth, and about as much again"
    assert 0.4 < 1 - even[2] / even[0] < 0.5 and 0.45 < 1 - balanced[2] / balanced[0] < 0.55, "nearly half"
    assert max(int(row[-1]) for row in cells) == 3 and all(row[-1] == "0" for row in cells if row[1] != "autonomous")
