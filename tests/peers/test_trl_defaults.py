"""The defaults that docs/from-trl.md says TRL has are those of the TRL that is installed (`make test-peers`)."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

trl = pytest.importorskip("trl", reason="trl is not here: make test-peers installs it")
sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import defaults

from gimbal import config, recipes
from gimbal.config.overrides import locate

THEIRS = {item.name: item.default for item in fields(trl.GRPOConfig)}
# Decided by the size of the model on our side; by epochs on theirs (in the table); AdamW on both; of no consequence.
APART = {"gradient_checkpointing", "bf16", "max_steps", "optim", "seed"}


def same(told, default):
    default = getattr(default, "value", default)  # an enum's
    return float(told) == float(default) if re.fullmatch(r"[-\d.e]+", told) else told == str(default)


def test_what_the_table_says_of_trl():
    told = defaults.settings("TRL")
    assert len(told) >= 10
    wrong = {name: (value, THEIRS[name]) for name, value in told if not same(value, THEIRS[name])}
    assert not wrong, wrong
    assert f"TRL {'.'.join(trl.__version__.split('.')[:2])}:" in defaults.SECTION


def test_every_default_that_differs_is_in_the_table(tmp_path):
    """Of the names that both understand."""
    run, told = defaults.pretrained(tmp_path), {name for name, _ in defaults.settings("TRL")}
    ours, missing, compared = config.paths(run), {}, 0
    for name, default in THEIRS.items():
        if default is None or isinstance(default, type) or name in APART:
            continue
        try:
            places = [path for path, _ in locate(recipes.load("grpo"), name, "1") if path in ours]
        except (ValueError, KeyError):  # a name of theirs alone
            continue
        for path in places:
            compared += 1
            if not same(str(ours[path]), default) and name not in told:
                missing[name] = (default, path, ours[path])
    assert not missing, missing
    assert compared > 8
