"""Pictures in scales: how they are written, what a scale is learned after, and what its rewards see."""

from dataclasses import dataclass, replace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

import made

from gimbal import config, recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.unmasking import Unmasking
from gimbal.environments.conditions import Conditions
from gimbal.objectives.regularisers.staggered_forcing import StaggeredForcing
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops.scales import LEVELS, pictured, spelled
from gimbal.policies.commits import Commits, MaskedSampling
from gimbal.policies.masked import MaskedPolicy
from gimbal.policies.token import Sampling
from gimbal.records import Task, TrainBatch
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.digits import DigitDistance, digits
from gimbal.rewards.samples import finished
from gimbal.runtime.compose import check
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.workflows.in_scales import InScales

SIDES = (1, 2, 4)
SAMPLING = MaskedSampling(max_length=21, blocks=(1, 4, 16), threshold=0.0)
MASK, COLOURS = 3, 3


class Letters:
    """A tokenizer of the first levels."""

    mask_token_id, eos_token_id = MASK, None

    def encode(self, text, add_special_tokens=True):
        return [LEVELS.index(letter) for letter in text]

    def decode(self, ids, skip_special_tokens=True):
        return "".join(LEVELS[id] for id in ids if id != MASK)


def tiny():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=COLOURS + 1,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
        tie_word_embeddings=False,
    )
    model = BertForMaskedLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    return MaskedPolicy(model, Letters(), batch=8, source="letters").eval()


def rows(policy, count=3):
    letters = torch.Generator().manual_seed(1)
    texts = ["".join(LEVELS[i] for i in torch.randint(COLOURS, (21,), generator=letters)) for _ in range(count)]
    return Commits.stack([policy.written(Task(id="t", prompt="ab"), text, SAMPLING) for text in texts])


# Pictures as text.


def test_a_picture_is_spelled_at_each_side_and_read_from_its_finest():
    picture_D = torch.tensor([-1.0, -1, 1, 1, -1, -1, 1, 1, 0, 0, 0.5, 0.5, 0, 0, -0.5, -0.5])
    text = spelled(picture_D, SIDES)
    assert text == "e" + "aiee" + "aaiiaaiieeggeecc", "by means over blocks of pixels"
    torch.testing.assert_close(pictured(text[-16:]), picture_D)
    assert pictured("") is None and pictured("aix") is None
    assert spelled(torch.full((16,), 5.0), (1,)) == "i" and spelled(torch.full((16,), -5.0), (1,)) == "a"
    for wrong in ((3,), (0,), (8,)):
        with pytest.raises(ValueError, match="divisors"):
            spelled(picture_D, wrong)


def test_rewards_of_samples_see_the_finest_scale():
    data_KD, _ = digits()
    text = spelled(data_KD[5], (2, 4, 8))
    sampling = MaskedSampling(max_length=84, blocks=(4, 16, 64), threshold=0.0)
    commits = Commits.written([0], [LEVELS.index(letter) for letter in text], sampling, mask=len(LEVELS))
    row = made.rollout(decisions=commits, text=text)
    torch.testing.assert_close(finished([row])[0], pictured(text[-64:]))
    assert DigitDistance()(made.group(made.TASK, row))[0] < 1.0, "levels are as fine as every second of the data's"
    for other in (replace(row, text="?" * 84), made.rollout(text=text)):
        with pytest.raises(ValueError, match=r"Denoiser.*gimbal-scales"):
            finished([other])


# What a scale is learned after.


def by_hand(policy, decisions):
    """(recorded tokens, own tokens) [N, S] after the own tokens of the pass before: every state is written out and asked for alone."""
    out = torch.zeros(2, *decisions.shape)
    ends = [0, 1, 5, 21]
    for n in range(decisions.shape[0]):
        true, prompt = decisions.token_NS[n].tolist(), [0, 1]

        def logits(cells, end, prompt=prompt):
            ids = torch.tensor([[*prompt, *cells, *[MASK] * (end - len(cells))]])
            shown = policy.model(input_ids=ids).logits[0, len(prompt) + len(cells) :]
            return shown[:, :MASK].log_softmax(-1)

        for scale in (1, 2):
            before, begin, end = ends[scale - 1 : scale + 2]
            own_before = logits(true[:before], begin).argmax(-1).tolist()
            own = logits(true[:begin], end).argmax(-1)
            after = logits([*true[:before], *own_before], end)
            for place in range(begin, end):
                out[0, n, place] = after[place - begin, true[place]]
                out[1, n, place] = after[place - begin, own[place - begin]]
    return out


def test_columns_after_the_own_pass_are_those_written_out_by_hand():
    policy = tiny()
    decisions = rows(policy)
    found = policy.evaluate(decisions, columns=("exposed_NS", "staggered_NS"))
    expected = by_hand(policy, decisions)
    torch.testing.assert_close(found.columns["exposed_NS"], expected[0])
    torch.testing.assert_close(found.columns["staggered_NS"], expected[1])
    assert torch.equal(found.logprob_NS, policy.evaluate(decisions).logprob_NS)
    assert (found.columns["staggered_NS"][:, 0] == 0).all() and (expected[0] != expected[1]).any()
    hot = policy.evaluate(decisions, columns=("exposed_NS",), temperature=1e3).columns["exposed_NS"]
    torch.testing.assert_close(
        hot[:, 1:], torch.full_like(hot[:, 1:], -torch.log(torch.tensor(3.0))), atol=0.05, rtol=0
    )


def test_one_pass_has_none_before_it():
    policy = tiny()
    whole = MaskedSampling(max_length=21, threshold=0.0)
    one = policy.written(Task(id="t", prompt="ab"), "abc" * 7, whole)
    assert all(
        (x == 0).all() for n, x in policy.evaluate(one, columns=("exposed_NS",)).columns.items() if n != "entropy_NS"
    )


def loss_of(policy, decisions, part):
    found = policy.evaluate(decisions, columns=("exposed_NS", "staggered_NS"))
    batch = TrainBatch(mask_NS=torch.ones(decisions.shape, dtype=torch.bool)).evaluated(found.columns)
    return part(found.logprob_NS, batch).loss_NS, found


def test_what_is_likeliest_being_recorded_it_is_likelihood_but_for_the_first_pass():
    policy = tiny()
    sampling = replace(SAMPLING, temperature=0.0)
    engine = Unmasking().start(policy)
    engine.load(0, policy.weights())
    engine.submit(Request(group=0, task=Task(id="t", prompt="ab"), sample=0, sampling=sampling, seed=0))
    (found,) = drained(engine).values()
    decisions = policy.written(Task(id="t", prompt="ab"), found.rollout.text, SAMPLING)
    for target in ("own", "recorded"):
        loss_NS, told = loss_of(policy, decisions, StaggeredForcing(coef=0.3, target=target))
        plain_NS = Likelihood()(told.logprob_NS, TrainBatch(mask_NS=torch.ones(1, 21, dtype=torch.bool))).loss_NS
        torch.testing.assert_close(loss_NS[:, 1:], 0.3 * plain_NS[:, 1:])
        assert loss_NS[0, 0] == 0


def test_targets_and_the_coefficient_by_hand():
    policy = tiny()
    decisions = rows(policy)
    exposed_NS, staggered_NS = by_hand(policy, decisions)
    torch.testing.assert_close(loss_of(policy, decisions, StaggeredForcing(coef=0.5))[0], -0.5 * staggered_NS)
    recorded = StaggeredForcing(coef=0.5, target="recorded")
    torch.testing.assert_close(loss_of(policy, decisions, recorded)[0], -0.5 * exposed_NS)
    assert (loss_of(policy, decisions, StaggeredForcing(coef=0.0))[0] == 0).all()
    with pytest.raises(ValueError, match=r"theirs.*own.*recorded"):
        recipes.load("sar", {"regularisers.0.target": config.Text("theirs")})


@pytest.mark.parametrize("target", ["own", "recorded"])
def test_its_gradient_goes_through_the_state_after_the_own_pass_alone(target):
    policy = tiny()
    decisions = rows(policy)
    weight, size = policy.model.bert.embeddings.position_embeddings.weight, 1e-3

    def total():
        return loss_of(policy, decisions, StaggeredForcing(coef=1.0, target=target))[0].double().sum()

    total().backward()
    grad = weight.grad[6].clone()
    for place in grad.abs().topk(3).indices.tolist():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[6, place] += sign * size
                values.append(float(total()))
                weight[6, place] -= sign * size
        assert (values[0] - values[1]) / (2 * size) == pytest.approx(float(grad[place]), rel=0.03, abs=2e-2)


# Real pictures as rollouts.


def test_what_is_written_is_a_real_digit_of_the_class_at_every_side():
    run = replace(recipes.load("next_scale_sft"), prompts_per_step=10, held_out=None)
    trainer = Trainer(run)
    trainer.begin()
    _, groups, _ = trainer.advance()
    trainer.close()
    data_KD, label_K = digits()
    texts = {(spelled(x, (2, 4, 8)), int(label)) for x, label in zip(data_KD, label_K, strict=True)}
    made_ = [row for group in groups for row in group.rollouts]
    assert {(row.text, row.task.columns["label"]) for row in made_} <= texts and len({row.text for row in made_}) > 5
    assert all(row.decisions.pass_NS[0].bincount().tolist() == [4, 16, 64] for row in made_)
    assert all((row.behavior_S == 0).all() and row.mask_S.all() for row in made_)


def test_a_class_without_pictures_and_other_sides_are_refused():
    run = recipes.load("next_scale_sft")
    with pytest.raises(ValueError, match="asks for class 11"):
        check(replace(run, tasks=Conditions(labels=(11,))))
    with pytest.raises(ValueError, match=r"sides of \[4, 8\].*max_length=80,threshold=0,blocks=\[16, 64\]"):
        check(replace(run, workflow=InScales(sides=(4, 8))))


@dataclass(frozen=True, kw_only=True)
class Cells(AbstractReward):
    """How many decisions a rollout has."""

    name: str = "cells"

    def __call__(self, group):
        return [float(row.length) for row in group.rollouts]


def test_an_evaluation_samples_as_its_own_sampling_says():
    run = recipes.load("paco_resolution")
    held_out = replace(run.held_out, tasks=Conditions(labels=(3, 5), size=2), rewards=(Cells(),))
    policy = run.policy.load()
    for sampling, cells in ((run.held_out.sampling, 84), (None, 20)):
        asked = replace(run, held_out=replace(held_out, sampling=sampling))
        found = evaluate_held_out(asked, policy)
        assert found.score == cells == found.greedy_score
    with pytest.raises(
        ValueError, match=r"held_out\.sampling is Sampling, which does not fit MaskedLM.*=MaskedSampling"
    ):
        check(replace(run, held_out=replace(held_out, sampling=Sampling())))
    assert check(run) == check(recipes.load("next_scale")), "the clip never acts in either"


def test_the_shipped_policy_draws_pixels_alone():
    policy = recipes.load("next_scale").policy.load()
    decisions = policy.written(Conditions(labels=(3,)).task(0), "e" * 84, recipes.load("next_scale").sampling)
    states = decisions.states
    for _, _, logits_KV in policy.read(states.text_ML, states.width_M, states.masked_ML):
        levels = policy.tokenizer.encode(LEVELS, add_special_tokens=False)
        torch.testing.assert_close(logits_KV.softmax(-1)[:, levels].sum(-1), torch.ones(len(logits_KV)))
