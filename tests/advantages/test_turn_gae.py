"""Values and advantages of turns: against token-level GAE, the group's mean, and by hand."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "environments")]
from spoken import driven

from gimbal import ops
from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.dataflow.packing import pack
from gimbal.environments.chores import Chores
from gimbal.environments.terminal import Terminal
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.ops import SequenceMean, TokenMean
from gimbal.ops.levels import first_of_turn
from gimbal.policies.loading import AGENT
from gimbal.policies.token import CausalLM
from gimbal.records import Group, Part, TrainBatch

G = torch.Generator().manual_seed(0)


def batch(n=6, s=8, dtype=torch.float64):
    def draw():
        return torch.randn(n, s, generator=G, dtype=dtype)

    mask_NS = torch.arange(s) < torch.randint(3, s + 1, (n, 1), generator=G)
    mask_NS[0, 1] = False
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=draw(),
        advantage_NS=draw(),
        value_NS=draw(),
        new_value_NS=draw().requires_grad_(),
        target_NS=draw(),
        bootstrap_N=draw()[:, 0],
        turn_NS=torch.rand(n, s, generator=G).lt(0.4).long().cumsum(-1),
        group_N=torch.arange(n) // 3,
    )


def by_token(b):
    return replace(b, turn_NS=torch.arange(b.shape[1]).expand(b.shape))


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.95), (1.0, 1.0), (0.99, 0.0)])
def test_turns_of_one_decision_are_gae(gamma, lam):
    b = by_token(batch())
    torch.testing.assert_close(TurnGAE(gamma=gamma, lam=lam)(b), GAE(gamma=gamma, lam=lam)(b), atol=1e-12, rtol=0)


def test_one_turn_without_a_value_is_the_return_and_with_the_group_s_mean_its_deviation():
    b = batch()
    b = replace(b, turn_NS=None, value_NS=torch.zeros(b.shape), bootstrap_N=torch.zeros(6))
    torch.testing.assert_close(TurnGAE()(b), b.return_N[:, None] * b.mask_NS)
    mean_N = ops.group_mean(b.return_N, b.group_N)
    b = replace(b, value_NS=mean_N[:, None] * b.mask_NS)
    torch.testing.assert_close(TurnGAE()(b), GroupCentered()(b), atol=1e-12, rtol=0)


def test_a_turn_s_value_at_all_its_tokens_is_the_same_with_lam_1():
    b = batch()
    reward_NS = torch.zeros_like(b.reward_NS)
    last_N = b.mask_NS.sum(-1) - 1 + (torch.arange(6) == 0).long()
    reward_NS[torch.arange(6), last_N] = torch.randn(6, generator=G, dtype=torch.float64)
    first_NS = first_of_turn(b.turn_NS, b.mask_NS)
    spread_NS = ops.pooled(b.value_NS.where(first_NS, 0), b.mask_NS, "turn", b.turn_NS, "sum")
    b = replace(b, reward_NS=reward_NS, value_NS=spread_NS)
    torch.testing.assert_close(TurnGAE(gamma=1.0, lam=1.0)(b), GAE(gamma=1.0, lam=1.0)(b), atol=1e-12, rtol=0)


def test_by_hand_with_a_time_limit():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True, False, True, True]]),
        reward_NS=torch.tensor([[0.0, 1.0, 9.0, 2.0, 0.5]]),
        value_NS=torch.tensor([[3.0, 7.0, 7.0, 4.0, 7.0]]),
        bootstrap_N=torch.tensor([10.0]),
        turn_NS=torch.tensor([[0, 0, 0, 1, 1]]),
    )
    second = 2.5 + 0.5 * 10 - 4  # the episode continues
    first = 1 + 0.5 * 4 - 3 + 0.5 * 0.5 * second
    assert TurnGAE(gamma=0.5, lam=0.5)(b).tolist() == [[first, first, 0.0, second, second]]


def test_the_value_is_read_and_trained_at_the_first_decision_alone():
    b = batch()
    first_NS = first_of_turn(b.turn_NS, b.mask_NS)
    other = replace(b, value_NS=b.value_NS.where(first_NS, 1e3))
    assert torch.equal(TurnGAE()(b), TurnGAE()(other))
    part = TurnValueLoss()
    (gradient_NS,) = torch.autograd.grad(part(b.value_NS, b).loss_NS.sum(), b.new_value_NS)
    assert torch.equal(gradient_NS != 0, first_NS) and torch.equal(part.counted(b), first_NS)


def test_turns_of_one_decision_are_value_loss():
    b = by_token(batch())
    first, second = (part(b.value_NS, b).loss_NS for part in (TurnValueLoss(clip=0.3), ValueLoss(clip=0.3)))
    assert torch.equal(first, second)
    assert torch.equal(*(torch.autograd.grad(loss.sum(), b.new_value_NS)[0] for loss in (first, second)))
    assert torch.equal(TurnValueLoss().counted(b), b.mask_NS)


@pytest.mark.parametrize("level", ["token", "turn", "sequence"])
def test_units_that_count_once_have_mean_0_and_deviation_1(level):
    b = batch()
    white_NS = Whitened(level=level)(b)
    turn_NS = torch.zeros_like(b.turn_NS) if level == "sequence" else b.turn_NS
    one_NS = b.mask_NS if level == "token" else first_of_turn(turn_NS, b.mask_NS)
    units = ops.pooled(white_NS, b.mask_NS, level, turn_NS)[one_NS]
    torch.testing.assert_close(units.mean(), units.new_zeros(()), atol=1e-12, rtol=0)
    torch.testing.assert_close(units.std(correction=0), units.new_ones(()), atol=1e-6, rtol=0)


def test_levels_agree_where_turns_are_tokens_and_equal_advantages_are_0():
    b = by_token(batch())
    torch.testing.assert_close(Whitened(level="turn")(b), Whitened()(b), atol=1e-12, rtol=0)
    b = replace(batch(), advantage_NS=torch.full((6, 8), 0.1))
    for level in ("token", "turn", "sequence"):
        assert (Whitened(level=level)(b) == 0).all()


def test_equal_turns_of_one_advantage_each_are_the_token_level():
    advantage_NU = torch.randn(3, 2, generator=G)
    b = TrainBatch(
        mask_NS=torch.ones(3, 6, dtype=torch.bool),
        advantage_NS=advantage_NU.repeat_interleave(3, -1),
        turn_NS=torch.tensor([[0, 0, 0, 1, 1, 1]] * 3),
    )
    torch.testing.assert_close(Whitened(level="turn")(b), Whitened()(b))


def test_the_recipe_s_loss_is_the_mean_over_a_turn_s_tokens_over_turns():
    b = batch()
    loss_NS = TurnBalanced(weighting="turn")(replace(b, advantage_NS=torch.ones_like(b.value_NS)))
    loss_NS = loss_NS * b.value_NS
    means = ops.pooled(b.value_NS, b.mask_NS, "turn", b.turn_NS)[first_of_turn(b.turn_NS, b.mask_NS)]
    torch.testing.assert_close((SequenceMean()(b.mask_NS) * loss_NS).sum(), means.mean(), atol=1e-6, rtol=1e-6)
    starts_NS = TurnValueLoss().counted(b)
    assert TokenMean()(starts_NS)[starts_NS].unique().numel() == 1


def test_the_turns_of_an_episode_in_a_terminal_are_what_the_policy_wrote_between_two_answers():
    task, agent = Chores(kinds=("follow_total",))[0], CausalLM(model=AGENT).load()
    programs = [f"${program}<eos>" for program in task.columns["programs"]]
    told = [[*programs, f"<answer>{task.answer}</answer><eos>"], [programs[0], "<answer>no</answer><eos>"]]
    episodes = [driven(agent, task, Terminal(), *turns)[0] for turns in told]
    b = pack([Group(index=0, task=task, episodes=tuple(episodes))])
    first_NS = first_of_turn(b.turns_NS, b.mask_NS)
    assert first_NS.sum(-1).tolist() == [3, 2] and b.reward_NS.sum(-1).tolist() == [1.0, 0.0]
    for row, (episode, turns) in enumerate(zip(episodes, told, strict=True)):
        ids = episode.last.decisions.ids_NL[0, int(episode.last.decisions.prompt_N[0]) :]
        for turn, said in enumerate(turns):
            own_S = (b.turns_NS[row] == turn) & b.mask_NS[row]
            assert agent.tokenizer.decode(ids[own_S[: len(ids)]]) == said
        assert (b.part_NS[row][: len(ids)] == Part.OBSERVATION).any() and first_NS[row, 0]
    value_NS = torch.where(first_NS, torch.tensor([[0.5], [0.25]]), 99.0)  # nothing but first decisions is read
    found_NS = TurnGAE(gamma=1.0, lam=0.5)(replace(b, value_NS=value_NS, bootstrap_N=torch.zeros(2)))
    expected = [[0.125, 0.25, 0.5], [-0.125, -0.25]]  # the last turn's 1 - 0.5 and 0 - 0.25, halved at each turn before
    for row, advantages in enumerate(expected):
        for turn, advantage in enumerate(advantages):
            assert found_NS[row][(b.turns_NS[row] == turn) & b.mask_NS[row]].unique().tolist() == [advantage]
    assert (found_NS[~b.mask_NS] == 0).all()
