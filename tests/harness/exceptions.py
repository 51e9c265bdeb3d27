"""Where a method may differ from what the harness asks of all, and why: {class: {test: reason}}."""

EXCEPTIONS: dict[str, dict[str, str]] = {
    "RewardDecoupled": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it reads rewards by name, which stay unequal here",
    },
    "TreeShaped": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it reads outcomes by name, which stay unequal here",
    },
    "RevisionNormalized": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it reads outcomes by name, which stay unequal here",
    },
    "ChainRanked": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it reads rewards by name, which stay unequal here",
    },
    "NoveltySharpened": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "with nothing to compare it keeps the advantage",
    },
    "DiversityWeighted": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it weighs the advantages it is given",
    },
    "NormalizedStep": {
        "test_a_small_step_makes_good_decisions_likelier": "its ratio is to the sampler, which is far from the policy here",
    },
    "NewExtremes": {
        "test_controllers_survive_json_and_stay_bounded": "the first signal has none before it, so its height changes nothing",
    },
    "EdgeAveraged": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it redistributes the advantages it is given",
    },
    "Scaled": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it scales the advantages it is given",
    },
    "ResidualWeighted": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "it weighs the advantages it is given",
    },
    "JointsClipped": {
        "test_a_small_step_makes_good_decisions_likelier": "its gradient is of each number's log-probability, not of their sum",
    },
    "TurnSweep": {
        "test_a_small_step_makes_good_decisions_likelier": "the decisions of a turn share one ratio, so their advantages mix",
    },
    "StepBlended": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "steps of one rollout score unlike, and the advantage it is given stays",
    },
    "AdvantageRegression": {
        "test_a_small_step_makes_good_decisions_likelier": "decisions of a row share its mean advantage, and the fit stops at it",
    },
    "Acceptance": {
        "test_controllers_survive_json_and_stay_bounded": "the more groups are kept the fewer it asks for: it falls with its signal",
    },
    "TwoPhaseDecay": {
        "test_controllers_survive_json_and_stay_bounded": "it goes by the count of steps and has no signal",
    },
    "Linear": {
        "test_controllers_survive_json_and_stay_bounded": "it goes by the count of steps and has no signal",
    },
    "Staircase": {
        "test_controllers_survive_json_and_stay_bounded": "it goes by the count of steps and has no signal",
    },
    "Ready": {
        "test_controllers_survive_json_and_stay_bounded": "it opens after several checks, so no single signal moves it",
    },
    "Delayed": {
        "test_controllers_survive_json_and_stay_bounded": "it goes by the count of steps and has no signal",
    },
    "PhasedPID": {
        "test_controllers_survive_json_and_stay_bounded": "the first reward has no speed yet, so its height changes nothing",
    },
    "CrossRolloutBaseline": {
        "test_equal_rewards_and_lone_rollouts_teach_nothing": "its baseline is a prediction, which equal rewards may exceed",
    },
}
