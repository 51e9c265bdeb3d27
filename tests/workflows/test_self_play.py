"""One policy at both seats: who earns what, and what becomes of a match that breaks."""

from dataclasses import dataclass, replace
from random import Random

import pytest

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (the extra games)")
import torch

from gimbal.advantages import SeatCentered
from gimbal.dataflow.packing import pack
from gimbal.engines.base import DRAW, AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.environments import games
from gimbal.environments.base import AbstractEnvironment, Moment
from gimbal.environments.games import AbstractGame, Deals, Game, Plays, Table, Turn, decisions, nash_conv, uniform
from gimbal.learning.separate import SeparateWeights
from gimbal.policies.loading import LEDUC, PLAYER
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.recipes.papers.agents.kuhn import kuhn
from gimbal.recipes.papers.agents.leduc import GAME, leduc
from gimbal.records import Drop, Group, Rollout, Task
from gimbal.runtime import checkpoint, compose
from gimbal.runtime.local import Trainer
from gimbal.workflows.belief_state import BeliefState
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven
from gimbal.workflows.self_play import SelfPlay, chances_of, exploitability

POLICY = CausalLM().load()
TRUTH = {(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)}


class Player(AbstractEngineSpec):
    """An engine that writes what a function of (what was seen, sample) says."""

    def __init__(self, choose):
        self.choose = choose

    @property
    def can(self):
        return frozenset({DRAW})

    def start(self, policy):
        return Playing(policy, self.choose)


class Playing(AbstractEngine):
    version, tolerance = 0, 0.0

    def __init__(self, policy, choose):
        self.policy, self.choose, self.rows = policy, choose, []

    @property
    def in_flight(self):
        return len(self.rows)

    def submit(self, request):
        self.rows.append(request)

    def step(self):
        rows, self.rows = self.rows, []
        return [Finished.of(request.key, self.row(request)) for request in rows]

    def row(self, request):
        text = self.choose(request.task.prompt.strip(), request.sample)
        zero_S = torch.zeros(1)
        return Rollout(
            task=request.task, sample=request.sample, row=request.row, stop="length", sampling=request.sampling, text=text,
            decisions=Tokens.row(self.policy.encode_task(request.task), self.policy.tokenizer.encode(text)),
            behavior_S=zero_S, version_S=zero_S.long(), mask_S=zero_S == 0, reward_S=zero_S,
        )  # fmt: skip

    def cancel(self, key): ...
    def score(self, rollout): ...
    def state_dict(self): ...
    def load_state_dict(self, state): ...
    def load(self, version, state): ...


def outcomes(choose, task=None, samples=4, game=Game()):
    """What comes of each sample of a group."""
    live, task = Driven(engine=Player(choose), workflow=SelfPlay(game=game)).start(POLICY), task or Deals()[0]
    for sample in range(samples):
        live.submit(Request(group=0, task=task, sample=sample, sampling=Sampling(max_length=1), seed=1))
    done = {}
    while len(done) < samples:
        done |= {item.key[1]: item.outcome for item in live.step()}
    return [done[sample] for sample in range(samples)]


def bold(seen, sample):
    """Match 0 bets always; in match 1 seat 0 passes and folds."""
    return "1" if sample != 2 else "0"


def test_each_seat_earns_its_own_and_has_a_row_for_each_decision():
    one, other, shy, taker = outcomes(bold)
    first, second = one.rows[0].task.prompt[0], other.rows[0].task.prompt[0]
    assert (
        one.earned == (2 if first > second else -2) and other.earned == -one.earned
    )  # bet, call: the higher card wins two
    assert [row.task.prompt for row in other.rows] == [f"{second}b\n"]
    assert (shy.earned, taker.earned) == (-1, 1)  # pass, bet, fold
    assert [row.task.prompt for row in shy.rows] == [f"{first}\n", f"{first}pb\n"]
    assert [row.role for row in (*one.rows, *other.rows)] == ["seat 0", "seat 1"]
    assert shy.rows[0].reward_S.tolist() == [0] and shy.rows[1].reward_S.tolist() == [-1]


def test_what_a_deal_is_worth_to_a_seat_is_taken_off():
    """Of the same deal: seat 0 by bets and by passes, each against the mean of the two; GroupCentered would take off nothing."""
    episodes = outcomes(bold)
    batch = pack([Group(index=0, task=Deals()[0], episodes=tuple(episodes))])
    advantage_N = SeatCentered().of_rows(batch)[:, 0]
    one, _, shy, _ = (episode.earned for episode in episodes)
    half = (one - shy) / 2
    assert advantage_N.tolist() == [half, -half, -half, -half, half]  # match 0 has two rows, match 1 three
    assert batch.roles == ("seat 0", "seat 1") and batch.return_N.tolist() == [one, -one, -1, -1, 1]


def test_an_illegal_action_loses_and_says_nothing_of_the_other():
    one, other, *_ = outcomes(lambda seen, sample: "7" if sample == 1 else "1")
    assert (one.earned, other.earned) == (0, -2)
    failed = [[step.failed for step in one.acts] for one in outcomes(lambda seen, sample: "7" if sample == 1 else "1")]
    assert failed == [[0], [1], [0], [0]], "an illegal action counts as a call that failed, in tool/failed_frac"
    one, other, *_ = outcomes(lambda seen, sample: "x")
    assert one.earned == -2 and other == Drop("unplayed")


def test_a_table_that_breaks_voids_both_seats_of_its_match_and_no_other(monkeypatch):
    step = Table.step

    def breaks(table, action):
        if table.broken and len(table._state.history()) == 3:
            raise OSError("the cards are gone")
        return step(table, action)

    made = []
    monkeypatch.setattr(Table, "step", breaks)
    monkeypatch.setattr(
        Game,
        "open",
        lambda spec: made.append(Table(spec.name)) or vars(made[-1]).update(broken=len(made) == 1) or made[-1],
    )
    found = outcomes(lambda seen, sample: "1")
    void = [one for one in found if isinstance(one, Drop)]
    assert [drop.reason for drop in void] == ["environment_error"] * 2 and [drop.drawn for drop in void] == [1, 1]
    assert "the cards are gone" in void[0].said and void[1].said == ""
    assert sorted(one.earned for one in found if not isinstance(one, Drop)) == [-2, 2]


def test_all_deals_come_and_a_deal_is_its_tasks():
    dealt = []
    for index in range(120):
        table = Table("kuhn_poker")
        table.reset(Deals()[index], 0)
        dealt.append(tuple(table._state.history()))
    assert set(dealt) == TRUTH and min(map(dealt.count, TRUTH)) >= 10  # 20 each; 10 is 2.4 standard deviations below


def test_random_play_is_legal_and_takes_each_action_as_often():
    plays, legal = Plays(games=("kuhn_poker",)), decisions("kuhn_poker")
    taken = [(task.prompt[:-1], int(task.columns["completion"])) for task in map(plays.__getitem__, range(2400))]
    assert {(seen, action) for seen, action in taken} == {(seen, action) for seen in legal for action in (0, 1)}
    assert abs(sum(action for _, action in taken) - 1200) < 100  # four standard deviations
    assert plays[7] == plays[7] != Plays(games=("kuhn_poker",), seed=1)[7]
    both = Plays()
    assert [both[index].source for index in range(3)] == ["kuhn_poker", "leduc_poker", "kuhn_poker"]
    leduc = decisions("leduc_poker")
    assert all(int(both[at].columns["completion"]) in leduc[both[at].prompt[:-1]] for at in range(1, 200, 2))
    with pytest.raises(IndexError, match="task 2 of 2"):
        Plays(size=2)[2]


def test_the_shipped_player_knows_the_actions_and_no_more():
    """It plays legally, and is as far from an equilibrium as who takes any action."""
    policy = CausalLM(model=PLAYER).load()
    for seen, legal in decisions("kuhn_poker").items():
        prompt = policy.encode_task(Task(id="t", prompt=f"{seen}\n"))
        rows = [Tokens.row(prompt, policy.tokenizer.encode(str(action))[:1]) for action in legal]
        assert policy.evaluate(Tokens.stack(rows)).logprob_NS[:, 0].exp().sum() > 0.95
    assert 0.8 < exploitability(policy, "kuhn_poker") < 1.1


@pytest.mark.slow
def test_the_shipped_player_of_leduc_poker_knows_the_actions_and_no_more():
    policy = CausalLM(model=LEDUC).load()
    chances = chances_of(policy, GAME)
    assert games.illegal(GAME, chances).matches < 0.1 and nash_conv(GAME, chances) > 4


def test_an_odd_group_is_refused():
    with pytest.raises(ValueError, match="num_generations that 2 divides"):
        outcomes(bold, samples=3)


@dataclass(frozen=True, kw_only=True)
class Counting(AbstractGame):
    """Three seats count in words, each the next number; who is wrong loses 2, and the others win 1."""

    seats: int = 3
    most: None = None

    def open(self):
        return Counters()


class Counters(AbstractEnvironment):
    def reset(self, task, seed):
        self.at = 0
        return Turn(seat=0, seen="begin")

    def step(self, action):
        self.at += 1
        seat = (self.at - 1) % 3
        if action != str(self.at):
            return Moment(
                observation=Turn(returns=tuple(-2.0 if one == seat else 1.0 for one in range(3))), terminated=True
            )
        return Moment(observation=Turn(seat=self.at % 3, seen=f"{action} was said"))


def test_seats_of_a_game_in_words_write_whole_turns():
    """Sample 2 is wrong the second time that it is its turn: the seats before it have two rows by then, and it has too."""
    said = {"begin": "1", **{f"{number} was said": str(number + 1) for number in range(1, 9)}}
    outcome = outcomes(
        lambda seen, sample: "hm" if (seen, sample) == ("5 was said", 2) else said[seen], samples=3, game=Counting()
    )
    assert [one.earned for one in outcome] == [1, 1, -2]
    assert [[row.text for row in one.rows] for one in outcome] == [["1", "4"], ["2", "5"], ["3", "hm"]]
    assert outcome[0].rows[0].stop == "length", "a turn ends as it ended, not for the sake of the game"
    with pytest.raises(ValueError, match="num_generations that 3 divides"):
        outcomes(bold, samples=4, game=Counting())


def equilibrium(a):
    """Kuhn's (1950), one for each a of 0 to 1/3: what the first seat bets with the lowest card."""
    bets = {"0": a, "1": 0, "2": 3 * a, "0pb": 0, "1pb": a + 1 / 3, "2pb": 1}
    bets |= {"0b": 0, "1b": 1 / 3, "2b": 1, "0p": 1 / 3, "1p": 0, "2p": 1}
    return {seen: {0: 1.0 - p, 1: float(p)} for seen, p in bets.items()}


def test_the_distance_to_an_equilibrium():
    assert nash_conv("kuhn_poker", uniform("kuhn_poker")) == pytest.approx(11 / 12)
    for a in (0, 0.2, 1 / 3):
        assert nash_conv("kuhn_poker", equilibrium(a)) == pytest.approx(0, abs=1e-9)
    timid = equilibrium(0.2) | {"1b": {0: 1.0, 1: 0.0}}  # folds the middle card to any bet
    assert nash_conv("kuhn_poker", timid) > 0.05
    told = {seen: {0: 0.2, 1: 0.2, 9: 0.6} for seen in uniform("kuhn_poker")}  # what is not legal is left out
    assert nash_conv("kuhn_poker", told) == pytest.approx(11 / 12)


def test_what_the_distance_leaves_out_is_told_beside_it():
    """By hand: seat 0 is illegal with 0.1 at each of its decisions, seat 1 never."""
    told = uniform("kuhn_poker")
    assert games.illegal("kuhn_poker", told) == pytest.approx((0, 0), abs=1e-9)
    own = {seen for seen in told if len(seen) in (1, 3)}  # nothing was played, or a pass and a bet
    less = {seen: {a: p * (0.9 if seen in own else 1) for a, p in chances.items()} for seen, chances in told.items()}
    assert nash_conv("kuhn_poker", less) == pytest.approx(11 / 12), "what is legal is scaled"
    assert games.illegal("kuhn_poker", less) == pytest.approx((0.1, 0.1 + 0.9 * 0.5 * 0.5 * 0.1))


def test_play_forfeits_as_often_as_is_told():
    """The same against matches that are played."""
    told = {seen: dict.fromkeys(legal, 0.4) for seen, legal in decisions("kuhn_poker").items()}
    drawn = Random(0)
    played = [outcomes(lambda *_: drawn.choices(("0", "1", "7"), (0.4, 0.4, 0.2))[0], samples=2) for _ in range(400)]
    forfeits = [any(step.failed for one in seats if not isinstance(one, Drop) for step in one.acts) for seats in played]
    assert sum(forfeits) / len(forfeits) == pytest.approx(games.illegal("kuhn_poker", told).matches, abs=0.08)


def test_a_model_that_cannot_tell_what_it_sees_is_told_its_distance():
    """With weights of nothing it takes all actions alike."""
    policy = CausalLM().load()
    for weight in policy.model.parameters():
        weight.data.zero_()
    assert exploitability(policy, "kuhn_poker") == pytest.approx(11 / 12, abs=1e-5)
    most = games.illegal("kuhn_poker", chances_of(policy, "kuhn_poker")).most
    assert most == pytest.approx(1 - 2 / len(policy.tokenizer), abs=1e-5)


def test_what_a_seat_sees_tells_its_decisions_apart():
    assert len(decisions("kuhn_poker")) == 12
    leduc = decisions("leduc_poker")
    assert len(leduc) == 936 and max(map(len, leduc)) < 20
    assert nash_conv("leduc_poker", uniform("leduc_poker")) == pytest.approx(4.747, abs=1e-3)


@pytest.mark.slow
def test_leduc_poker_without_suits_is_the_same_game():
    """A policy that is drawn at random has the same distance in both, and the recipe's game is the one without."""
    whole, drawn = decisions("leduc_poker"), Random(0)
    told = {seen: {a: drawn.random() for a in legal} for seen, legal in decisions(GAME).items()}
    chances = {seen: told[without_suits(seen)] for seen in whole}
    assert len(told) == 288 and {without_suits(seen) for seen in whole} == set(told)
    assert nash_conv("leduc_poker", chances) == pytest.approx(nash_conv(GAME, told), abs=1e-9)
    assert leduc().workflow.game.name == leduc().tasks.game == GAME


def without_suits(seen):
    """A card's rank is its number halved; a board is told once there is one, between one's own card and the two rounds."""
    *cards, first, second = seen.split("/")
    return "/".join([*(str(int(card) // 2) for card in cards), first, second])


@pytest.mark.parametrize(
    "name, sentence", [("chequers_", "has no game chequers_"), ("hearts", "is for 4"), ("goofspiel", "take turns")]
)
def test_what_is_no_game_for_two_is_refused(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        games.loaded(name)


def test_the_seats_may_be_two_players_who_both_learn(single_thread):
    run = kuhn()
    optimization = replace(run.optimization, learning_rate=1e-3)
    small = {"prompts_per_step": 4, "regularisers": (), "reference_resets": (), "optimization": optimization}
    trainer = Trainer(replace(run, **small, separate={"seat 1": SeparateWeights()}))
    compose.check(trainer.run)
    models, before = trainer.learner.models, Trainer(replace(run, **small)).learner.policy.state_dict()
    metrics, _, batch = trainer.advance()
    assert set(batch.roles) == {"seat 0", "seat 1"} and metrics["grad_norm"] > 0 < metrics["grad_norm/seat 1"]
    for name in ("policy", "seat 1"):
        assert any(not torch.equal(weight, before[key]) for key, weight in models[name].state_dict().items()), name


def test_a_checkpoint_with_matches_in_the_middle_goes_on_to_the_same_bits(tmp_path):
    run = replace(
        kuhn(), prompts_per_step=2, num_generations=4, max_staleness=1, engine=replace(kuhn().engine, slots=6)
    )
    trainer = Trainer(run)
    trainer.advance()
    trainer.save(tmp_path, {"tokens": 0})
    with (checkpoint.newest(tmp_path) / "state.pt").open("rb") as file:
        assert b"games\nTurn" in file.read(), "a match is under way"
    again = Trainer(run, checkpoint.newest(tmp_path))
    for one, other in ((trainer.advance(), again.advance()) for _ in range(2)):
        assert one[0]["loss"] == other[0]["loss"] and torch.equal(one[2].version_NS, other[2].version_NS)


def test_a_game_of_several_seats_is_none_for_one():
    for of_one in (Dialogue, BeliefState):
        with pytest.raises(ValueError, match=r"a game of several seats: workflow='SelfPlay\(game=Game\(\)\)'"):
            of_one(tool=Game())
