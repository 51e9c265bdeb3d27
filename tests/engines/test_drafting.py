"""Drafts change how often the model is called, and nothing else."""

import math
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_native import END, drain, engine, ids, policy, prompts, request

from gimbal import recipes
from gimbal.engines.drafting.base import AbstractDrafter, AbstractDrafts, Costs, Length
from gimbal.engines.drafting.draft_model import Block, Distilled, DraftModel, distance, shares
from gimbal.engines.drafting.prompt_lookup import PromptLookup, looked_up
from gimbal.engines.drafting.self_speculation import Matrix, SelfSpeculation
from gimbal.engines.native import Native
from gimbal.policies import logits
from gimbal.policies.token import CausalLM
from gimbal.runtime.compose import check

FREE = {"slope": 0.0, "overhead": 0.0, "margin": -1.0}  # drafts cost nothing
LOOKUP, SELF = PromptLookup(least=1, **FREE), SelfSpeculation(**FREE)
MODEL = DraftModel(learning_rate=3e-3, blocks=8, minibatch=4, warmup=1, **FREE)


@dataclass(frozen=True, kw_only=True)
class Blind(AbstractDrafter):
    """Drafts letters by counting: mostly wrong, and of another length in every row."""

    def start(self, model):
        return Counting(), self.costs(model, draft=0.0)


class Counting(AbstractDrafts):
    def propose(self, fronts, most):
        newest = fronts.ids_BL[torch.arange(len(most)), fronts.known_B - 1].tolist()
        return [[(last + j) % 27 for j in range(count % 4)] for last, count in zip(newest, most, strict=True)]


BLIND = Blind(**FREE)
DRAFTERS = {"lookup": LOOKUP, "self": SELF, "blind": BLIND, "model": MODEL}
SAMPLINGS = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.5, "max_length": 20},
    {"top_p": 0.8, "top_k": 6, "max_length": 9},
    {"min_p": 0.1, "stop": ("ab", "q")},
]


def asked(count, seed=0):
    """Groups of two rows of other lengths and settings."""
    for group, text in enumerate(prompts(count, seed)):
        for sample in range(2):
            said = {"max_length": 14} | SAMPLINGS[(group + seed) % len(SAMPLINGS)]
            yield request(text, group=group, sample=sample, seed=seed, **said)


def drawn(e, requests):
    for item in requests:
        e.submit(item)
    return drain(e)


def same(rollouts, others):
    assert rollouts.keys() == others.keys()
    for key, rollout in rollouts.items():
        other = others[key]
        assert ids(rollout) == ids(other) and rollout.stop == other.stop, key
        assert rollout.version_S.tolist() == other.version_S.tolist()
        torch.testing.assert_close(rollout.behavior_S, other.behavior_S, atol=1e-5, rtol=0)
        if rollout.entropy_S is not None:
            torch.testing.assert_close(rollout.entropy_S, other.entropy_S, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "drafter"),
    [("qwen3", "lookup"), ("qwen3", "blind"), ("llama", "self"), ("gpt2", "self"), ("gpt2", "model")],
)
def test_tokens_are_those_of_plain_decoding(family, drafter):
    p, passes = policy(family), []
    for seed, slots in ((0, 1), (1, 3), (2, 8)):
        plain = drawn(engine(p, slots=slots, entropy=True), asked(1 if slots == 1 else 3, seed))
        e = engine(p, slots=slots, entropy=True, drafter=DRAFTERS[drafter])
        same(drawn(e, asked(1 if slots == 1 else 3, seed)), plain)
        passes.append(e.metrics()["drafts/passes_per_token"])
    assert min(passes) < 1, "drafts were accepted"


@pytest.mark.parametrize("drafter", ["lookup", "self"])
def test_tokens_of_gimbal_tiny(drafter):
    p = CausalLM().load()
    tasks = [request(f"State the answer: {n} + {n + 5} =\n", n, sample, n) for n in range(2) for sample in range(2)]
    plain = drawn(engine(p, slots=4), tasks)
    e = engine(p, slots=4, drafter=replace(DRAFTERS[drafter], longest=5))
    same(drawn(e, tasks), plain)
    found = e.metrics()
    assert found["drafts/passes_per_token"] < 0.9 and found["drafts/drafting_frac"] > 0.3
    assert e.metrics().keys() == {"drafts/acceptance"}, "what was read is not told again"


@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "cache"), [("lookup", "keep"), ("self", "recompute"), ("model", "keep")])
def test_every_step_shows_what_it_shows_without_drafts(drafter, cache):
    """New weights in the middle of rows, cancelled rows, and rows that split off others, all between two steps."""
    p, new = policy(), policy(seed=1)
    pair = [engine(p, slots=6, cache=cache, drafter=one) for one in (None, DRAFTERS[drafter])]
    shown = []
    for e in pair:
        e.extended = True
        for item in asked(3):
            e.submit(item)
        seen = []
        for step in range(45):
            finished = {f.key: f.rollout for f in e.step()}
            seen.append((finished, {f.key: f.rollout for f in e.partial_rollouts()}))
            if step in (3, 11):
                e.load(step, (new if step == 3 else p).state_dict())
            if step == 6:
                seen.append(({}, {} if (gone := e.cancel(e.rows[1].request.key)) is None else {(0, 0): gone}))
            for key, rollout in finished.items():
                if rollout.length > 4 and key[0] < 10:
                    fork = request("x", group=10 + key[0], sample=key[1], max_length=12)
                    e.extend(replace(fork, task=rollout.task), rollout, told=[1, 2], first=3)
        assert not e.in_flight
        shown.append(seen)
    assert len(shown[0]) == len(shown[1])
    for (ended, partial), (others, rest) in zip(*shown, strict=True):
        same(ended, others)
        same(partial, rest)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["lookup", "self", "model"])
def test_an_engine_that_drafts_goes_on_from_its_state_to_the_same_bits(drafter):
    p = policy()
    spec = Native(slots=4, precision="bfloat16", entropy=True, drafter=DRAFTERS[drafter])

    def started():
        e = spec.start(p)
        e.decoder.pace.costs = replace(e.decoder.pace.costs, draft=0.0)  # it drafts however little is accepted
        return e

    def begun():
        e = started()
        e.load(0, p.state_dict())
        for item in asked(3):
            e.submit(item)
        for _ in range(3):
            e.step()
        for version in (1, 2):  # where a drafter learns, first from answers, then from drafts
            for _ in range(6):
                e.step()
            e.load(version, p.state_dict())
        return e

    whole, cut = begun(), begun()
    steps = 0
    while not bool((cut.table.known_B > cut.table.length_B).any()) or len(cut.rows) < 2:
        cut.step(), whole.step()
        steps += 1
        assert steps < 30, "tokens are in store"
    resumed = started()
    resumed.load(0, p.state_dict())
    resumed.load_state_dict(cut.state_dict())
    rest, again = drain(whole), drain(resumed)
    assert rest.keys() == again.keys() and whole.metrics() == resumed.metrics()
    for key, rollout in rest.items():
        assert ids(rollout) == ids(again[key])
        assert torch.equal(rollout.behavior_S, again[key].behavior_S)
        assert torch.equal(rollout.entropy_S, again[key].entropy_S)
    for other in (None, BLIND):  # resumed with another drafter: the tokens stay
        e = replace(spec, drafter=other).start(p)
        e.load(0, p.state_dict())
        e.load_state_dict(cut.state_dict())
        assert {key: ids(rollout) for key, rollout in drain(e).items()}.keys() == rest.keys()


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["self", "blind"])
def test_frequencies_of_whole_texts_by_chi_square(drafter):
    """Three tokens from the exact distribution, enumerated."""
    p, draws, temperature = policy(), 3000, 3.0
    e = engine(p, slots=1000, drafter=DRAFTERS[drafter])
    asking = (request("abc", sample=i, max_length=3, temperature=temperature) for i in range(draws))
    counts = Counter(tuple(ids(rollout)) for rollout in drawn(e, asking).values())
    prompt, probability = p.tokenizer.encode("abc"), {(): 1.0}
    for length in range(3):
        open_ = [text for text, q in probability.items() if len(text) == length and text[-1:] != (END,) and q > 1e-7]
        with torch.no_grad():
            logits = p.model(torch.tensor([[*prompt, *text] for text in open_])).logits[:, -1].double() / temperature
        for text, row in zip(open_, logits.softmax(-1).tolist(), strict=True):
            whole = probability.pop(text)
            probability |= {(*text, token): whole * q for token, q in enumerate(row)}
    assert sum(probability.values()) == pytest.approx(1)
    cells = [text for text, q in probability.items() if q * draws >= 5]
    rest = draws - sum(counts[text] for text in cells), draws * (1 - sum(probability[text] for text in cells))
    seen = [*((counts[text], draws * probability[text]) for text in cells), rest]
    statistic, freedom = sum((n - m) ** 2 / m for n, m in seen), len(seen) - 1
    assert freedom > 20
    # The 99.9% point of chi-square, by Wilson and Hilferty.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert drafter == "blind" or e.metrics()["drafts/accepted_per_row"] > 0.2


def test_drafts_stop_where_they_are_not_worth_it():
    costs = Costs(model=400.0, draft=100.0, slope=0.05, overhead=40.0, draft_overhead=40.0)
    assert costs.gain(1, 0, 0.9) == 1
    # Nine tenths accepted, five drafted: 4.686 tokens in five narrow passes of 140 and one of 440 + 5 * 20.
    assert costs.gain(1, 5, 0.9) == pytest.approx((1 - 0.9**6) / 0.1 * 440 / (5 * 140 + 540))
    rule = Length(SELF, costs)
    rule.spec = replace(SELF, margin=0.1)
    assert rule.most(1) > 0 and rule.most(256) == 0, "a large batch has nothing to gain"
    assert Length(rule.spec, replace(costs, draft=400.0)).most(1) == 0, "a drafter as large as the model"
    for _ in range(40):
        rule.observe([4], [0], 1)
    assert rule.most(1) == 0
    for _ in range(64):
        assert rule.most(1) == 0
        rule.observe([], [0], 1)
    assert rule.most(1) == 2, "once in a while it is tried again"
    for _ in range(40):
        rule.observe([2], [2], 3)
    assert rule.most(1) > 2
    again = Length(rule.spec, costs)
    again.load_state_dict(rule.state_dict())
    assert again.metrics() == rule.metrics() and again.most(1) == rule.most(1)


def test_what_followed_the_longest_common_past_is_drafted():
    row = np.array([5, 1, 2, 3, 9, 8, 1, 2])
    assert looked_up(row, [row], 1, 8, 3) == [3, 9, 8]
    other = np.array([8, 1, 2, 7, 7])
    assert looked_up(row, [row, other], 1, 8, 3) == [7, 7]
    assert looked_up(row, [row, other], 1, 2, 3) == [3, 9, 8], (
        "no more than two are compared: the row itself comes first"
    )
    assert looked_up(row, [row], 3, 8, 3) == []
    assert looked_up(row, [np.array([1, 2, 4, 1, 2, 6])], 1, 8, 1) == [6], "late places come first"


def test_a_rounded_layer_is_the_layer_and_follows_its_weights():
    layer = torch.nn.Linear(64, 40)
    matrix, x = Matrix(layer, False), torch.randn(3, 2, 64)
    for scale in (1.0, 30.0):
        with torch.no_grad():
            layer.weight.mul_(scale)
        matrix.load()
        far = (matrix(x) - layer(x)).norm() / layer(x).norm()
        assert 1e-5 < far < 0.02


def blocks_of(*shapes):
    """Blocks of so many tokens, so many of them right."""
    return [Block(ids=tuple(range(5 + count)), start=5, right=right) for count, right in shapes]


def logprobs(rows, seed):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).double().log_softmax(-1)


def test_loss_of_a_drafter_by_hand():
    blocks, p, q = blocks_of((3, 1), (2, 2), (1, 0)), logprobs(6, 0), logprobs(6, 1)

    def kl(a, b):
        return sum(math.exp(x) * (x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True))

    accepted = (kl(p[0], q[0]) + kl(p[3], q[3]) + kl(p[4], q[4])) / 3
    rejected = (kl(q[1], p[1]) + 0.5 * kl(q[2], p[2]) + kl(q[5], p[5])) / 2.5
    wanted = (accepted + 3 * rejected) / 4
    assert float(distance(p, q, *shares(blocks, DraftModel(decay=0.5, rejected=3.0)))) == pytest.approx(
        wanted, rel=1e-5
    )
    only_first = (accepted + (kl(q[1], p[1]) + kl(q[5], p[5])) / 2) / 2
    assert float(distance(p, q, *shares(blocks, DraftModel(decay=0.0)))) == pytest.approx(only_first, rel=1e-5)


def test_nothing_rejected_counts_is_forward_kl_where_the_drafter_was_right():
    blocks, p, q = blocks_of((2, 1)), logprobs(2, 0), logprobs(2, 1)
    wanted = float((p[0].exp() * (p[0] - q[0])).sum())
    assert float(distance(p, q, *shares(blocks, DraftModel(rejected=0.0)))) == pytest.approx(wanted, rel=1e-5)
    assert float(distance(p, q, *shares(blocks_of((2, 0)), DraftModel(rejected=0.0)))) == 0


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_gradient_of_a_drafter_is_that_of_all_logits_at_once(family, monkeypatch):
    p = policy(family)
    drafts, _ = MODEL.start(p.model)
    blocks, batch = [Block(tuple(range(2, 2 + n)), 2, right) for n, right in ((9, 3), (5, 3), (7, 0))], []
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self: batch.append([w.grad.clone() for w in self.param_groups[0]["params"]])
    )
    for most in (4096, 4):
        monkeypatch.setattr(logits, "rows", lambda weight, most=most: most)
        drafts._learn(blocks)
    rows = [
        [model(torch.tensor([b.ids])).logits[0, b.start - 1 : -1].log_softmax(-1) for b in blocks]
        for model in (p.model.requires_grad_(False), drafts.module)
    ]
    distance(torch.cat(rows[0]), torch.cat(rows[1]), *shares(blocks, MODEL)).backward()
    norm = torch.nn.utils.clip_grad_norm_(drafts.module.parameters(), 1.0)
    assert norm > 0
    for weight, *found in zip(drafts.module.parameters(), *batch, strict=True):
        for grad in found:
            torch.testing.assert_close(grad, weight.grad, atol=1e-5, rtol=1e-3)


def test_a_short_prompt_with_a_long_answer_comes_after_short_answers():
    """The cache grows for a row that it need not read first."""
    p = policy()
    late = request("ab", group=1, max_length=100, temperature=2.0)
    e, plain = engine(p, slots=2, drafter=MODEL), engine(p, slots=2)
    for one in (e, plain):
        drawn(one, [request("abcdefghijkl", max_length=3)])
    e.decoder.pace.costs = replace(e.decoder.pace.costs, draft=0.0)
    same(drawn(e, [late]), drawn(plain, [late]))


def rounds(e, p, count):
    """Accepted tokens of a draft in each round of the same requests, with a load after each."""
    found = []
    for version in range(count):
        drawn(e, asked(3))
        found.append(e.metrics().get("drafts/accepted_per_row", 0.0))
        e.load(version, p.state_dict())
    return found


def test_a_drafter_that_learns_from_its_rejected_drafts_is_accepted_more_often():
    p = policy("llama")
    e = engine(p, slots=6, drafter=replace(MODEL, warmup=0, blocks=64, minibatch=64, learning_rate=1e-2))
    e.decoder.pace.costs = replace(e.decoder.pace.costs, draft=0.0)  # it drafts however little is accepted
    before = {name: x.clone() for name, x in e.decoder.drafts.module.state_dict().items()}
    plain = {key: ids(rollout) for key, rollout in drawn(engine(p, slots=6), asked(3)).items()}
    found = rounds(e, p, 20)
    assert sum(found[-5:]) > 3 * sum(found[:5]), found
    assert {key: ids(rollout) for key, rollout in drawn(e, asked(3)).items()} == plain
    assert any(not torch.equal(x, before[name]) for name, x in e.decoder.drafts.module.state_dict().items())


def test_no_learning_rate_is_a_drafter_that_stays_as_it_is():
    p, other = policy("llama"), policy("llama", seed=1)
    e = engine(p, slots=6, drafter=replace(MODEL, learning_rate=0.0))
    before = {name: x.clone() for name, x in e.decoder.drafts.module.state_dict().items()}
    rounds(e, other, 3)
    assert "drafts/loss" not in e.metrics()
    assert all(torch.equal(x, before[name]) for name, x in e.decoder.drafts.module.state_dict().items())


def test_as_many_layers_as_the_policy_draft_nothing():
    p = policy()
    e = engine(p, slots=2, drafter=DraftModel(layers=2))
    drawn(e, asked(2))
    assert e.metrics()["drafts/passes_per_token"] == 1


def test_the_cache_of_a_drafter_is_its_own_forward_pass():
    """Whatever was accepted, refilled and moved: each first guess is that of the whole text."""
    p, seen = policy(), []
    e = engine(p, slots=3, drafter=MODEL)
    drafts = e.decoder.drafts
    assert isinstance(drafts, Distilled)
    propose = drafts.propose

    def watched(fronts, most):
        sample, first = fronts.sample, []
        found = propose(replace(fronts, sample=lambda logits, j: (first.append(logits), sample(logits, j))[1]), most)
        for row, known in enumerate(fronts.known_B.tolist()):
            whole = drafts.module(input_ids=fronts.ids_BL[row : row + 1, :known], use_cache=False).logits[0, -1]
            torch.testing.assert_close(first[0][row], whole, atol=2e-3, rtol=1e-4)
            seen.append(known)
        return found

    drafts.propose = watched
    rounds(e, p, 3)
    assert len(seen) > 40


def test_a_drafter_with_another_tokenizer_is_refused(tmp_path):
    p, run = policy(), recipes.load("grpo")
    p.model.save_pretrained(tmp_path), p.tokenizer.save_pretrained(tmp_path)
    own, other = DraftModel(model="gimbal-tiny-agent"), DraftModel(model=str(tmp_path))
    check(replace(run, engine=Native(drafter=own)))
    with pytest.raises(ValueError, match="another tokenizer than the policy gimbal-tiny"):
        check(replace(run, engine=Native(drafter=other)))
    assert isinstance(Native(slots=4, drafter=own).start(CausalLM().load()).decoder.drafts, Distilled)


def test_a_drafter_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="longest is 0"):
        PromptLookup(longest=0)
    with pytest.raises(ValueError, match="overhead is -1"):
        SelfSpeculation(overhead=-1.0)
    with pytest.raises(ValueError, match=r"layers=0.*1 or more"):
        DraftModel(layers=0)
    with pytest.raises(ValueError, match=r"decay=2\.0.*from 0 to 1"):
        DraftModel(decay=2.0)
    with pytest.raises(ValueError, match=r"layers is 2, but the drafter small keeps all its layers.*leave out one"):
        DraftModel(model="small", layers=2)
    with pytest.raises(ValueError, match="layers is 3, and the policy has 2"):
        DraftModel(layers=3).start(policy().model)
    with pytest.raises(ValueError, match="least is 3"):
        PromptLookup(least=3, most=2)


@pytest.mark.slow
def test_a_run_with_drafts_is_the_run_without(single_thread, tmp_path):
    sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
    from small import rows, small_run
    from test_resume import written

    from gimbal.runtime.local import run_local

    lines = {}
    for name, drafter in (("plain", None), ("lookup", LOOKUP), ("self", SELF), ("model", MODEL)):
        run = small_run(max_staleness=2, steps=3, tasks=rows(3))
        run_local(replace(run, engine=replace(run.engine, slots=5, drafter=drafter)), tmp_path / name)
        lines[name] = written(tmp_path / name)[0]
    for name in ("lookup", "self", "model"):
        assert min(line["drafts/passes_per_token"] for line in lines[name]) < 1
        for line, plain in zip(lines[name], lines["plain"], strict=True):
            assert {key.split("/")[0] for key in line.keys() - plain.keys()} == {"drafts"}
            for key, value in plain.items():
                assert line[key] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), (name, key)


@pytest.mark.slow
def test_a_run_whose_drafter_learns_resumes_to_the_same_bits(single_thread, tmp_path):
    """Half-drawn rows, the drafter's cache of them, its weights and moments, and what it has yet to learn from."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
    from small import small_run
    from test_resume import weights, written

    from gimbal.runtime import checkpoint
    from gimbal.runtime.local import run_local

    run = small_run(max_staleness=2, steps=6, record_every=2)
    run = replace(run, engine=replace(run.engine, slots=9, drafter=replace(MODEL, warmup=4)))
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))
    run_local(run, tmp_path / "cut", resume=True)
    whole, cut = written(tmp_path / "whole"), written(tmp_path / "cut")
    assert whole == cut and weights(tmp_path / "whole") == weights(tmp_path / "cut")
    learned = [step for step, line in enumerate(cut[0]) if line.get("drafts/loss", 0) > 0]
    assert min(learned) < 4 <= max(learned), "before and after the cut"
