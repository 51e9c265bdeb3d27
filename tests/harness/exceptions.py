"""Where a method may differ from what the harness asks of all, and why: {class: {test: reason}}."""

EXCEPTIONS: dict[str, dict[str, str]] = {
    "RewardDecoupled": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it reads rewards by name, which stay unequal here",
    },
    "NoveltySharpened": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "with nothing to compare it keeps the advantage",
    },
    "EdgeAveraged": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it redistributes the advantages it is given",
    },
    "TurnSweep": {
        "test_a_small_step_makes_good_decisions_likelier": "the decisions of a turn share one ratio, so their advantages mix",
    },
    "StepBlended": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "steps of one rollout score unlike, and the advantage it is given stays",
    },
    "Staircase": {
        "test_controllers_survive_json_and_stay_bounded": "it goes by the count of steps and has no signal",
    },
}
