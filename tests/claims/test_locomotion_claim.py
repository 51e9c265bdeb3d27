"""What the page says of SAC beside another library follows from the record by the rule."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import campaign
import locomotion
import locomotion_page


def runs(own, theirs):
    sides = {"gimbal": own, "sb3": theirs}
    return [
        {
            "task": "Hopper-v5",
            "arm": arm,
            "seed": seed,
            "return": value,
            "cpu": 100.0 + 60 * (arm == "sb3"),
            "load": 1.0,
        }
        for arm, values in sides.items()
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("own", "theirs", "said"),
    [
        ([300, 310, 320, 330, 340], [100, 110, 120, 130, 140], "| +200 (+170 to +230) | **gimbal above** | 0.62"),
        ([100, 110, 120, 130, 140], [300, 310, 320, 330, 340], "| -200 (-230 to -170) | **gimbal below** | 0.62"),
        ([100, 310, 120, 330, 140], [300, 110, 320, 130, 140], "not told apart"),
        ([300, 310], [100, 110, 120], "|  | not decided | 0.62"),
    ],
)
def test_a_verdict_on_legs_is_the_rules(own, theirs, said):
    page = locomotion_page.section(runs(own, theirs))
    assert said in page.split("| Hopper-v5 |")[1]


def test_what_is_recorded_of_legs_is_each_job_once():
    recorded = [(run["task"], run["arm"], run["seed"]) for run in campaign.load(locomotion.RECORD)]
    jobs = [job for part in locomotion.left([]) for job in part]
    assert len(set(recorded)) == len(recorded) and set(recorded) <= set(jobs) and len(jobs) == 20
