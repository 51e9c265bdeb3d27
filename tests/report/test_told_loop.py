from gimbal.report.loop import account, event


def test_a_step_is_told_where_much_of_it_was_taken_back():
    moved = {"loop/attempted": 0.31, "loop/target": 0.01}
    assert event(12, {**moved, "loop/kept": 0.9}) == event(12, {}) == ""
    assert event(12, {**moved, "loop/kept": 0.32}) == (
        "step 12 went 0.31 nats a decision, where 0.01 was the aim: 32% of it was kept"
    )
    assert event(12, {**moved, "loop/kept": 0.0}).endswith("the aim: undone")
    assert "not finite" in event(3, {"loop/kept": 0.0, "loop/not_finite": 1.0, "loop/target": 0.01})
    assert event(9, {"loop/returned": 4.0}).endswith("returned to version 4")


def test_the_account_of_a_run():
    columns = {
        "loop/kept": [0.1, 1.0, None, 0.0],
        "loop/factor": [1.0, 0.25, 0.25, 0.05],
        "loop/returned": [None, None, 1.0, None],
    }
    assert account(columns) == (
        "1 of 4 steps shortened, 1 undone, return to an earlier version in step 3, learning rate 1 times the one given at first, "
        "0.05 times at the end"
    )
    assert account({"loss": [1.0]}) == ""
