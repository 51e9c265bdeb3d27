"""docs/from-trl.md: the defaults that it says are ours are ours; TRL's are read in tests/peers/test_trl_defaults.py."""

import defaults

from gimbal import config
from gimbal.config import Text


def test_what_the_table_says_of_gimbal(tmp_path):
    run, told = defaults.pretrained(tmp_path), defaults.settings("gimbal")
    assert len(told) >= 12
    for key, value in told:
        assert config.override(run, {key: Text(value)}) == run, (key, value)
    assert run.regularisers == () and run.learns.optimization.epochs == run.learns.optimization.minibatches == 1


def test_what_is_typed_for_trls_changes_what_it_says(tmp_path):
    run = defaults.pretrained(tmp_path)
    assert run.engine.precision in ("bfloat16", "float32"), "the machine decides"
    typed = [(key, value) for key, value in defaults.settings("TRL's, typed here") if value != "N"]
    assert len(typed) >= 8
    for key, value in typed:
        changed = defaults.pretrained(tmp_path, **{key: Text(value)})
        assert changed != run or run.engine.precision == value, (key, value)
