"""The claims' verdicts follow from their records, and the page says what the records say."""

import json
import sys
from pathlib import Path

import pytest

CLAIMS = Path(__file__).parent.parent.parent / "claims"
sys.path.insert(0, str(CLAIMS))

import dose
import page


def test_the_page_is_what_the_records_say():
    written = {name: (CLAIMS / name).read_text(encoding="utf-8") for name in page.pages()}
    assert written == page.pages(), "run: python claims/page.py"


def test_the_verdicts_of_age():
    found = dose.verdicts(json.loads(dose.RECORD.read_text()), "age")
    assert not any(found["grpo"][age] for age in ("1", "4", "16"))
    assert all(
        found[method][age] for method in ("grpo-behavior", "grpo+tis", "dcmdp-version") for age in ("0", "1", "4")
    )
    assert not any(found["dcmdp"][age] for age in ("1", "4", "16")), "priced against the present policy"
    assert not any(doses.get("16") for doses in found.values())


@pytest.mark.parametrize(
    ("here", "stands"),
    [([0.95] * 5, True), ([0.9] * 5, False), ([0.95] * 4 + [0.44], False), ([0.91, 0.95, 0.95, 0.95, 0.6], True)],
)
def test_the_rule(here, stands):
    assert dose.withstands([0.96] * 5, here) is stands


def test_every_cell_is_a_run_that_can_be_made():
    from gimbal.runtime.compose import check

    for cell in dose.cells()[:: len(dose.cells()) // 25]:
        run = dose.run_of(*cell)
        check(run)
        assert run.prompts_per_step * run.num_generations == dose.ROLLOUTS and run.max_staleness == cell[1]
