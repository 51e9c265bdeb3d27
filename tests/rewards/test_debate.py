"""The debate by hand, against optimal play, its two ends, and an advocate or a judge that fails."""

from dataclasses import replace
from functools import cache

import pytest

from gimbal.environments.contested import Contested
from gimbal.ops import philox
from gimbal.rewards.debate import JUDGED, Debated
from gimbal.rewards.evidence_count import EvidenceCount
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import NoVerdict, score

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no verdict")
PIECES = [f"piece {place}" for place in range(6)]


def linear(weights):
    """J of a decision "a" is the sum of the weights of what is revealed; of any other, 0."""

    def judge(question):
        evidence = question.partition("|")[2].split("\n")
        return sum(weights[PIECES.index(piece)] for piece in evidence if piece) if question[0] == "a" else 0.0

    return JudgeScore(judge=judge, template="{decision}|{evidence}")


def play(weights, group_of, text="a", **fields):
    rule = Debated(judge=linear(weights), **{"reveals": 4, **fields})
    return rule(group_of(text, columns={"evidence": PIECES[: len(weights)], "baseline": "b"}))[0]


def optimal(weights, reveals):
    """The margin of best play on both sides."""

    @cache
    def value(revealed, turn):
        if turn == reveals:
            return sum(weights[place] for place in revealed)
        moves = [value(revealed | {place}, turn + 1) for place in range(len(weights)) if place not in revealed]
        return max(moves) if turn % 2 == 0 else min(moves)

    return value(frozenset(), 0)


def test_by_hand(group_of):
    # +5 by the rollout's advocate, -4 by the other's, +1, -3: -1 in all.
    assert play([5.0, -4.0, 1.0, -3.0, 0.0, 0.5], group_of) == 0
    assert play([5.0, -3.0, 1.0, -2.0, 0.0, 0.5], group_of) == 1


def test_greedy_play_is_optimal_for_a_judge_that_adds(group_of):
    for seed in range(30):
        weights = [float(x) for x in philox(seed, "debate").normal(0, 1, 6)]
        assert play(weights, group_of) == float(optimal(tuple(weights), 4) > 0)


@pytest.mark.parametrize("reveals", [6, 7])
def test_reduces_to_a_judge_who_sees_everything(group_of, reveals):
    for weights in ([5.0, -4.0, 1.0, -3.0, 0.5, 0.25], [5.0, -4.0, 1.0, -3.0, 0.5, 0.75]):
        assert play(weights, group_of, reveals=reveals) == float(sum(weights) > 0)


def test_reduces_to_the_other_reward_without_weight(group_of):
    group = group_of("<answer>4</answer>", "a", columns={"evidence": PIECES, "baseline": "b"})
    plain = score(group, (ExactAnswer(),))
    debated = score(group, (ExactAnswer(), Debated(judge=linear([1.0] * 6), weight=0.0)))
    assert plain.score_G.tolist() == debated.score_G.tolist() == [1, 0]


def test_one_advocate_alone_picks_what_suits_it(group_of):
    weights = [5.0, -40.0, 1.0, -30.0, 0.0, 0.5]
    assert play(weights, group_of, advocates="own") == 1 and play(weights, group_of) == 0


def test_a_tie_is_no_win_and_the_baseline_itself_wins_nothing(group_of):
    assert play([0.0] * 6, group_of) == 0 and play([1.0] * 6, group_of, text="b") == 0


def test_advocates_may_be_asked(group_of):
    seen = []

    def advocate(question):
        seen.append(question)
        return "I take number 2, or rather: 1"

    argued = "{decision}>{other};{evidence};{hidden}"
    assert play([1.0, -5.0, 3.0], group_of, advocate=advocate, argued=argued, reveals=2) == 0
    assert seen == [
        "a>b;;1. piece 0\n2. piece 1\n3. piece 2",
        "b>a;piece 0;1. piece 1\n2. piece 2",
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"advocate": lambda question: "none"}, "debate_advocate_unparsable"),
        ({"advocate": lambda question: "0"}, "debate_advocate_unparsable"),
        ({"advocate": lambda question: "9" * 5000}, "debate_advocate_unparsable"),
        ({"advocate": lambda question: "0" * 8 + "19"}, "debate_advocate_unparsable"),
        ({"advocate": lambda question: 1 / 0}, "debate_advocate_failed"),
        ({"judge": JudgeScore(judge=lambda question: 1 / 0, template=JUDGED)}, "judge_failed"),
        ({"judge": JudgeScore(judge=lambda question: None, template=JUDGED)}, "debate_unscored"),
    ],
)
def test_a_debate_that_fails_has_no_verdict(group_of, fields, reason):
    rule = Debated(**{"judge": linear([1.0] * 6), **fields})
    rule = replace(rule, reveals=3)
    (value,) = rule(group_of("a", columns={"evidence": PIECES, "baseline": "b"}))
    assert isinstance(value, NoVerdict) and value.reason == reason


def test_one_broken_game_does_not_end_the_others(group_of):
    judge = JudgeScore(
        judge=lambda q: 1 / 0 if "broken" in q else float("a" in q[:1]), template="{decision}|{evidence}"
    )
    values = Debated(judge=judge, reveals=2)(
        group_of("a", "broken", "c", "a", columns={"evidence": PIECES, "baseline": "b"})
    )
    assert values[0] == values[3] == 1 and values[2] == 0 and isinstance(values[1], NoVerdict)


def test_tasks_without_evidence_or_baseline_are_not_debated(group_of):
    rule = Debated(judge=linear([1.0] * 6))
    assert rule(group_of("a", "b")) == rule(group_of("a", "b", columns={"evidence": PIECES})) == [None, None]


def test_refusals():
    with pytest.raises(ValueError, match="at least"):
        Debated(reveals=0)
    with pytest.raises(ValueError, match=r"lacks \{evidence\}"):
        Debated(judge=JudgeScore(template="{decision}"))
    with pytest.raises(ValueError, match="choose sound"):
        Contested(style="good")


def test_worked_answers_beat_bare_ones_and_false_working_does_not(group_of):
    rule = Debated(judge=JudgeScore(judge=EvidenceCount(), template=JUDGED), reveals=2)
    task = Contested()[0]
    fields = {"prompt": task.prompt, "answer": task.answer, "columns": task.columns}
    sound, first = task.columns["completion"], task.columns["evidence"][0]
    false = sound.replace(first, first + "0")
    assert rule(group_of(sound, task.columns["baseline"], false, **fields)) == [1, 0, 0]
    assert all(Contested()[i].columns["baseline"] == f"<answer>{Contested()[i].answer}</answer>" for i in range(5))
