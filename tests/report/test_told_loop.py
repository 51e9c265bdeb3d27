"""What is said of the closed loop: as steps happen, at a run's end, and by the doctor on written records."""

import test_doctor
from test_doctor import BAD, FLAT, TOKENS, names, relabel

from gimbal.report.doctor import diagnose
from gimbal.report.loop import account, event

record = test_doctor.record  # the fixture


def test_a_step_is_told_where_much_of_it_was_taken_back():
    moved = {"loop/attempted": 0.31, "loop/target": 0.01}
    assert event(12, {**moved, "loop/kept": 0.9}) == event(12, {}) == ""
    assert event(12, {**moved, "loop/kept": 0.32}) == (
        "step 12 moved the policy 0.31 nats per decision (target 0.01): kept 32% of it"
    )
    assert event(12, {**moved, "loop/kept": 0.0}).endswith("(target 0.01): undone")
    assert "NaN or infinite" in event(3, {"loop/kept": 0.0, "loop/not_finite": 1.0, "loop/target": 0.01})
    ended = event(7, {"loop/kept": 1.0, "loop/at_end": 100.0})
    assert "now 100 times the given one, the end of the closed loop's range" in ended and "a larger one" in ended
    assert "a smaller one" in event(7, {"loop/kept": 0.9, "loop/at_end": 0.01})
    assert event(9, {"loop/returned": 4.0}).endswith("went back to version 4")


def test_the_account_of_a_run():
    columns = {
        "loop/kept": [0.1, 1.0, None, 0.0],
        "loop/factor": [1.0, 0.25, 0.25, 0.05],
        "loop/returned": [None, None, 1.0, None],
    }
    assert account(columns) == (
        "1 of 4 steps shortened, 1 undone, return to an earlier version in step 3, learning rate 1 times the given one at first, "
        "0.05 times at the end"
    )
    assert account({"loss": [1.0]}) == ""


HELD = TOKENS | {"stability": {"class": "Stability", "region": {"class": "Region", "kl": 0.01}}}


def test_of_a_run_whose_loop_sets_the_rate_the_rate_is_no_cause_and_no_advice(record):
    for step in (0.3, 1e-5):  # too far, and next to nothing
        assert any(sign.name.startswith("learning rate") for sign in diagnose(record(**FLAT, sync__moved=step)).causes)
        told = diagnose(record(run=HELD, **FLAT, sync__moved=step)).text()
        assert "learning rate" not in told and "learning_rate" not in told
    fell = diagnose(record(run=HELD, **BAD, sync__moved=0.3))
    assert fell.outcomes[0].experiment.endswith("stability.region.kl=0.0009")  # a third of the rate


def test_steps_that_the_loop_undid_are_a_sign_from_a_quarter_on(record):
    directory = record(run=HELD, loop__kept=1.0)
    for undone, found in ((2, []), (3, ["steps undone"])):
        relabel(directory, **{"loop/kept": [0.0] * undone + [1.0] * (12 - undone)})
        assert names(directory) == found
    assert (
        diagnose(directory).causes[0].experiment.endswith("learning_rate=1e-05")
    )  # they went too far at the least factor
    relabel(directory, **{"loop/not_finite": [1.0, *[None] * 11]})
    (sign,) = diagnose(directory).causes
    assert "undid 3 of 12 steps" in sign.evidence and sign.experiment.endswith("correction=MaskedWeight()'")
    stopped = diagnose(record(run=HELD, stopped="NotFinite", loop__kept=0.0, loop__not_finite=1.0))
    assert [sign.name for sign in stopped.causes] == ["not finite", "steps undone"]
    assert "learning_rate" not in stopped.text()
