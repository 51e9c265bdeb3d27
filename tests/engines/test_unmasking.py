"""The unmasking engine: it draws from the distribution that it records, the trainer says the same, texts can be resumed."""

import itertools
import math
import pickle
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from gimbal.engines.base import Request, cut_short, drained
from gimbal.engines.receipts import tensors
from gimbal.engines.unmasking import TOLERANCE, Unmasking
from gimbal.environments.sudoku import Sudoku
from gimbal.policies.commits import GIVEN, REVIEW, WHERE, Commits, MaskedSampling
from gimbal.policies.masked import MaskedLM, MaskedPolicy
from gimbal.records import Group, Part, Rollout, Task
from gimbal.report.metrics import rollout_metrics, tree_metrics
from gimbal.workflows.base import Ask, Draw
from gimbal.workflows.flow import new_in

TASKS = Sudoku(seed=5)
FORM = "<mask>" * 5 + "13" + "<mask>" * 8 + "2"
FORMED = replace(TASKS[0], columns={**TASKS[0].columns, "form": FORM, "empty": "<mask>" * 16})
GIVEN_CELLS = [5, 6, 15]
PROMPT = [3, 1]
MASK, END = 3, 2  # of the tiny model: of its vocabulary 0 to 2 are written


class Words:
    """A tokenizer of ids that are written as digits."""

    mask_token_id = MASK
    eos_token_id: int | None = None

    def encode(self, text, add_special_tokens=True):
        return [int(letter) for letter in text]

    def decode(self, ids, skip_special_tokens=True):
        return "".join(str(id) for id in ids if id != MASK)


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return MaskedLM(batch=16).load()


def tiny(end=None, sharp=8.0):
    """A network of 4 tokens whose distributions are far from uniform."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=4,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        tie_word_embeddings=False,
    )
    model = BertForMaskedLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(sharp)
    words = Words()
    words.eos_token_id = end
    return MaskedPolicy(model, words, batch=256, source="words").eval()


def engine_of(policy, **fields):
    engine = Unmasking(**fields).start(policy)
    engine.load(0, policy.weights())
    return engine


def ask(engine, samples, task=FORMED, **sampling):
    for sample in samples:
        engine.submit(
            Request(
                group=0,
                task=task,
                sample=sample,
                sampling=MaskedSampling(**{"max_length": 16} | sampling),
                seed=3,
            )
        )
    return engine


def drawn(engine):
    return {key[1]: finished.rollout for key, finished in drained(engine).items()}


def same(one, other):
    names = ("place_NS", "token_NS", "pass_NS", "seen_NS")
    equal = all(torch.equal(vars(one.decisions)[name], vars(other.decisions)[name]) for name in names)
    return equal and torch.equal(one.behavior_S, other.behavior_S) and torch.equal(one.version_S, other.version_S)


def stacked(rows):
    return Commits.stack([row.decisions for row in rows]), torch.nn.utils.rnn.pad_sequence(
        [row.behavior_S for row in rows], batch_first=True
    )


SAMPLINGS = [
    {},
    {"spread": 0.1},
    {"spread": 2.0, "threshold": 0.3, "temperature": 0.7},
    {"block": 5, "threshold": 0.5},
    {"block": 4, "spread": 0.2},
    {"blocks": (2, 9, 5), "threshold": 0.0},
    {"blocks": (6, 10), "spread": 0.1},
    {"reviews": 2, "keep": 0.95, "spread": 0.1},
    {"reviews": 1, "keep": 0.999, "threshold": 0.4},
    {"reviews": 2, "keep": 0.95, "spread": 0.1, "threshold": 0.4, "in_place": True, "temperature": 0.7},
    {"scaffold": "form", "block": 4, "spread": 0.2},
    {"scaffold": "form", "reviews": 2, "keep": 0.999, "spread": 0.1},
    {"scaffold": "form", "reviews": 1, "keep": 1.0, "in_place": True, "threshold": 0.4},
]


# What is drawn, against all that could be.


def probabilities(policy, cells):
    """[cell, token] at a state, straight from the network."""
    ids = torch.tensor([[*PROMPT, *cells]])
    with torch.no_grad():
        logits = policy.model(input_ids=ids).logits[0, len(PROMPT) :, :MASK].double()
    return logits.softmax(-1).tolist()


def choices(confidence, masked, sampling):
    """Every (order of cells, first the one that was drawn first; probability) of one pass."""
    if not sampling.spread:
        first = max(masked, key=lambda cell: confidence[cell])
        yield (first, *(c for c in masked if c != first and confidence[c] > sampling.threshold)), 1.0
        return
    weight = {cell: math.exp(confidence[cell] / sampling.spread) for cell in masked}
    for first in masked:
        others = [cell for cell in masked if cell != first]
        for opened in itertools.product((False, True), repeat=len(others)):
            p = weight[first] / sum(weight.values())
            for cell, is_open in zip(others, opened, strict=True):
                gate = 1 / (1 + math.exp(-(confidence[cell] - sampling.threshold) / sampling.spread))
                p *= gate if is_open else 1 - gate
            yield (first, *(cell for cell, is_open in zip(others, opened, strict=True) if is_open)), p


def reviews(policy, sampling, cells):
    """Every set of cells that a review may mask again, with its probability."""
    own = [p[cell] for p, cell in zip(probabilities(policy, cells), cells, strict=True)]
    if not sampling.spread:
        yield tuple(cell for cell, p in enumerate(own) if p < sampling.keep), 1.0
        return
    gate = [1 / (1 + math.exp(-(sampling.keep - p) / sampling.spread)) for p in own]
    for opened in itertools.product((False, True), repeat=len(cells)):
        chance = math.prod(g if is_open else 1 - g for g, is_open in zip(gate, opened, strict=True))
        yield tuple(cell for cell, is_open in enumerate(opened) if is_open), chance


def paths(policy, sampling, cells, end=None):
    """Every path from a state, as ((cell, token), ...) of each pass, with its probability."""
    block = sampling.block or len(cells)
    filled = sum(cell != MASK for cell in cells)
    if filled == len(cells) and sampling.reviews:
        for again, chance in reviews(policy, sampling, cells):
            more = sampling.reviews - 1 if again else 0
            left = replace(sampling, reviews=more, in_place=sampling.in_place and more > 0)
            p = probabilities(policy, cells)
            news = itertools.product(range(MASK), repeat=len(again)) if sampling.in_place else [(MASK,) * len(again)]
            for new in news:
                wrote = dict(zip(again, new, strict=True))
                own = math.prod(p[cell][token] for cell, token in wrote.items()) if sampling.in_place else 1.0
                after = [wrote.get(cell, token) for cell, token in enumerate(cells)]
                for rest, later in paths(policy, left, after, end):
                    yield (tuple(wrote.items()), *rest), chance * own * later
        return
    if filled == len(cells) or (filled and filled % block == 0 and end in cells):
        yield (), 1.0
        return
    seen = min(len(cells), (filled // block + 1) * block)
    p = probabilities(policy, cells[:seen])
    confidence = [max(row) for row in p]
    masked = [cell for cell in range(seen) if cells[cell] == MASK]
    for order, chance in choices(confidence, masked, sampling):
        for tokens in itertools.product(range(MASK), repeat=len(order)):
            after, own = list(cells), chance
            for cell, token in zip(order, tokens, strict=True):
                after[cell], own = token, own * p[cell][token]
            for rest, later in paths(policy, sampling, after, end):
                yield (tuple(zip(order, tokens, strict=True)), *rest), own * later


def path_of(rollout):
    found = {}
    d = rollout.decisions
    for place, token, at in zip(d.place_NS[0].tolist(), d.token_NS[0].tolist(), d.pass_NS[0].tolist(), strict=True):
        found.setdefault(at, [])
        if place >= 0:
            found[at].append((place, token))
    found.pop(GIVEN, None)
    return tuple(map(tuple, found.values()))


@pytest.mark.parametrize(
    ("sampling", "end"),
    [
        ({"threshold": 0.6}, None),
        ({"threshold": 1.0}, None),
        ({"threshold": 0.5, "spread": 0.3}, None),
        ({"threshold": 0.4, "spread": 0.5, "block": 2}, None),
        ({"threshold": 0.0, "block": 2}, END),
        ({"max_length": 2, "threshold": 0.5, "spread": 0.3, "reviews": 1, "keep": 0.6}, None),
        ({"max_length": 2, "threshold": 0.0, "reviews": 2, "keep": 0.5}, None),
        ({"max_length": 2, "threshold": 0.0, "reviews": 1, "keep": 0.5, "spread": 0.3, "in_place": True}, None),
        ({"max_length": 2, "threshold": 0.0, "reviews": 2, "keep": 0.6, "in_place": True}, None),
        ({"max_length": 4, "threshold": 0.5, "spread": 0.3, "scaffold": "form"}, None),
    ],
    ids=str,
)
def test_texts_are_drawn_as_often_as_all_their_paths_say_and_record_how_likely_that_was(sampling, end):
    policy, count = tiny(end), 2000
    sampling = {"max_length": 3} | sampling
    given = MaskedSampling(**sampling)
    begun = [MASK, 1, MASK, MASK] if given.scaffold else [MASK] * given.max_length
    expected = dict(paths(policy, given, begun, end))
    assert sum(expected.values()) == pytest.approx(1) and len(expected) > 9
    engine = engine_of(policy, slots=1024)
    task = Task(id="t", prompt="".join(map(str, PROMPT)), columns={"form": "3133"})
    rows = list(drawn(ask(engine, range(count), task=task, **sampling)).values())
    seen = Counter(map(path_of, rows))
    assert seen.keys() <= expected.keys()
    for row in rows[:200]:
        assert float(row.behavior_S.sum()) == pytest.approx(math.log(expected[path_of(row)]), abs=1e-4)
    # Rare paths together, so that each bin expects five or more.
    often = [path for path, p in expected.items() if p * count >= 5]
    bins = [(seen[path], expected[path] * count) for path in often]
    rest = count - sum(want for _, want in bins)
    bins += [(count - sum(got for got, _ in bins), rest)] if rest >= 5 else []
    chi2 = sum((got - want) ** 2 / want for got, want in bins)
    free = len(bins) - 1
    assert free > 5 and chi2 < free + 4 * math.sqrt(2 * free), (chi2, free)
    decisions, behavior_NS = stacked(rows[:300])
    assert (policy.evaluate(decisions).logprob_NS - behavior_NS).abs().max() < 1e-5


def test_blocks_of_one_cell_go_from_left_to_right_and_see_nothing_behind_them(policy):
    (row,) = drawn(ask(engine_of(policy), [0], block=1)).values()
    assert row.decisions.place_NS[0].tolist() == list(range(16)) == row.decisions.pass_NS[0].tolist()
    assert row.decisions.seen_NS[0].tolist() == list(range(1, 17))


def test_a_block_of_all_cells_is_no_block(policy):
    whole = drawn(ask(engine_of(policy), range(3)))
    assert all(same(row, whole[key]) for key, row in drawn(ask(engine_of(policy), range(3), block=16)).items())


def test_blocks_of_one_size_are_that_block_and_of_several_go_one_after_the_other(policy):
    equal = drawn(ask(engine_of(policy), range(3), block=4))
    assert all(same(row, equal[k]) for k, row in drawn(ask(engine_of(policy), range(3), blocks=(4,) * 4)).items())
    (row,) = drawn(ask(engine_of(policy), [0], blocks=(1, 4, 11), threshold=0.0)).values()
    assert row.decisions.pass_NS[0].bincount().tolist() == [1, 4, 11] and int(row.decisions.last_N) == 11
    assert row.decisions.seen_NS[0].tolist() == [1] + [5] * 4 + [16] * 11
    assert [int(row.decisions.place_NS[0, row.decisions.pass_NS[0] == p].max()) for p in range(3)] == [0, 4, 15]


def test_a_written_text_is_recorded_as_if_it_had_been_drawn(policy):
    sampling = MaskedSampling(max_length=16, blocks=(1, 4, 11), threshold=0.0)
    (row,) = drawn(ask(engine_of(policy), [0], blocks=(1, 4, 11), threshold=0.0)).values()
    made = policy.written(TASKS[0], row.text, sampling)
    order = row.decisions.place_NS[0].argsort()
    for name in ("place_NS", "token_NS", "pass_NS", "seen_NS"):
        assert torch.equal(vars(made)[name][0], vars(row.decisions)[name][0, order])
    assert torch.equal(made.prompt_NP, row.decisions.prompt_NP) and torch.equal(made.keep_N, row.decisions.keep_N)
    assert torch.equal(policy.evaluate(made).logprob_NS[0], row.behavior_S[order])
    short = policy.written(TASKS[0], row.text, replace(sampling, max_length=5))
    assert short.token_NS.tolist() == made.token_NS[:, :5].tolist() and short.seen_NS.max() == 5
    with pytest.raises(ValueError, match=r"3 tokens.*max_length=16"):
        policy.written(TASKS[0], row.text[:3], sampling)
    for other in ({"threshold": 0.5}, {"spread": 0.1}, {"reviews": 1, "blocks": ()}, {"scaffold": "form"}):
        with pytest.raises(ValueError, match=r"which cells a pass commits.*sampling.threshold=0"):
            policy.written(TASKS[0], row.text, replace(sampling, **other))


def test_threshold_1_commits_one_cell_a_pass_and_0_all(policy):
    (one,) = drawn(ask(engine_of(policy), [0], threshold=1.0)).values()
    assert int(one.decisions.passes_N) == 16 and int(one.decisions.cost_N) == 16 * 32
    (all_,) = drawn(ask(engine_of(policy), [0], threshold=0.0)).values()
    assert int(all_.decisions.passes_N) == 1 and all_.length == 16 and int(all_.decisions.tokens_N) == 16
    (blocks,) = drawn(ask(engine_of(policy), [0], threshold=0.0, block=4)).values()
    assert int(blocks.decisions.passes_N) == 4 and blocks.decisions.seen_NS.unique().tolist() == [4, 8, 12, 16]


def test_a_small_spread_chooses_as_none_does(policy):
    plain = drawn(ask(engine_of(policy), range(8), threshold=0.55))
    sharp = drawn(ask(engine_of(policy), range(8), threshold=0.55, spread=1e-9))
    assert all(sharp[key].text == row.text for key, row in plain.items())
    where_S = sharp[0].decisions.place_NS[0] == WHERE
    assert int(where_S.sum()) == int(plain[0].decisions.passes_N) and sharp[0].behavior_S[where_S].abs().max() < 1e-6
    assert torch.equal(sharp[0].part_S == Part.CONTROL, where_S)


def test_at_temperature_0_the_likeliest_token_of_each_cell_is_written(policy):
    rows = drawn(ask(engine_of(policy), range(2), temperature=0.0, spread=0.5))
    assert rows[0].text == rows[1].text and not (rows[0].decisions.place_NS == WHERE).any()
    decisions, behavior_NS = stacked(rows.values())
    assert torch.equal(policy.evaluate(decisions).logprob_NS, behavior_NS), "by the policy's own distribution"


def test_reviews_of_0_write_each_cell_once_a_keep_of_0_keeps_all_and_of_1_doubts_all(policy):
    once = drawn(ask(engine_of(policy), range(6), threshold=0.6, keep=1.0))
    kept = drawn(ask(engine_of(policy), range(6), threshold=0.6, reviews=3, keep=0.0))
    anew = drawn(ask(engine_of(policy), range(6), threshold=0.6, reviews=2, keep=1.0))
    for key, row in once.items():
        assert not (row.decisions.place_NS == REVIEW).any() and int(row.decisions.remasked_N) == 0
        assert kept[key].text == row.text and kept[key].decisions.place_NS[0, -1] == REVIEW
        assert int(kept[key].decisions.passes_N) == int(row.decisions.passes_N) + 1, (
            "a review that masks nothing is the last"
        )
        assert int(anew[key].decisions.remasked_N) == 32 and int(anew[key].decisions.tokens_N) == 16
        assert anew[key].length <= MaskedSampling(max_length=16, reviews=2).most


def test_what_a_review_masks_is_a_decision_and_the_masks_that_follow_it_are_none(policy):
    row = drawn(ask(engine_of(policy), [0], threshold=0.3, spread=0.3, reviews=1, keep=0.9))[0]
    d = row.decisions
    review_S, mask_S = d.place_NS[0] == REVIEW, (d.token_NS[0] == policy.mask) & (d.place_NS[0] >= 0)
    assert int(review_S.sum()) == 1 and int(mask_S.sum()) == int(d.remasked_N) > 0
    assert row.mask_S[review_S].all() and row.behavior_S[review_S].item() < 0
    assert not row.mask_S[mask_S].any() and (row.behavior_S[mask_S] == 0).all()
    assert torch.equal(row.part_S == Part.CONTROL, d.place_NS[0] < 0)
    assert policy.pieces(d)[int(review_S.nonzero()[0])] == "?"


def test_an_edit_in_place_is_of_the_pass_that_reads_and_its_tokens_count(policy):
    row = drawn(ask(engine_of(policy), [0], threshold=0.3, spread=0.3, reviews=1, keep=0.9, in_place=True))[0]
    d = row.decisions
    review = int((d.place_NS[0] == REVIEW).nonzero()[0])
    edits_S = torch.arange(row.length) > review
    assert int(edits_S.sum()) == int(d.remasked_N) > 0 and (d.pass_NS[0, edits_S] == d.pass_NS[0, review]).all()
    assert (d.token_NS[0] != policy.mask).all() and row.mask_S[edits_S].all() and (row.behavior_S[edits_S] <= 0).all()
    assert (d.place_NS[0, edits_S] >= 0).all() and row.length <= row.sampling.most
    masked = drawn(ask(engine_of(policy), [0], threshold=0.3, spread=0.3, reviews=1, keep=0.9))[0].decisions
    assert int(masked.passes_N) > int(d.passes_N), "what is masked is filled in by passes of its own"
    place_S, token_S = d.place_NS[0, :review], d.token_NS[0, :review]
    before = [int(token_S[place_S == cell]) for cell in range(16)]
    given = policy.prompt(TASKS[0])
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([given + before])).logits[0, len(given) :].double()
    logits[:, policy.mask] = -torch.inf
    log_p = logits.log_softmax(-1)[d.place_NS[0, edits_S], d.token_NS[0, edits_S]]
    torch.testing.assert_close(row.behavior_S[edits_S].double(), log_p, atol=1e-5, rtol=0)


def test_at_temperature_0_a_review_is_certain_and_no_decision(policy):
    row = drawn(ask(engine_of(policy), [0], temperature=0.0, threshold=0.3, spread=0.3, reviews=1, keep=0.9))[0]
    review_S = row.decisions.place_NS[0] == REVIEW
    assert int(review_S.sum()) == 1 and not row.mask_S[review_S].any() and row.behavior_S[review_S].item() == 0


# Cells that the task gave.


def test_what_the_task_gives_is_there_from_the_start_stays_and_is_nobodys_decision(policy):
    for sampling in ({}, {"threshold": 1.0}, *SAMPLINGS[-3:]):
        for row in drawn(ask(engine_of(policy), range(4), **(sampling | {"scaffold": "form"}))).values():
            d = row.decisions
            assert d.place_NS[0, :3].tolist() == GIVEN_CELLS and d.given_NS[0].tolist() == [True] * 3 + [False] * (
                row.length - 3
            )
            assert (d.pass_NS[0, :3] == GIVEN).all() and int(d.pass_NS[0, 3]) == 0 and not row.mask_S[:3].any()
            assert (row.behavior_S[:3] == 0).all() and [row.text[cell] for cell in GIVEN_CELLS] == ["1", "3", "2"]
            assert not set(d.place_NS[0, 3:].tolist()) & set(GIVEN_CELLS) and row.length <= row.sampling.most
            assert int(d.tokens_N) == 13
    (one,) = drawn(ask(engine_of(policy), [0], threshold=1.0, scaffold="form")).values()
    assert int(one.decisions.passes_N) == 13, "no pass is spent on what is given"
    first = one.decisions.states.text_ML[0, 16:]
    assert (first == policy.mask).nonzero()[:, 0].tolist() == [cell for cell in range(16) if cell not in GIVEN_CELLS]
    evaluated = policy.evaluate(one.decisions).logprob_NS[0]
    (gradient,) = torch.autograd.grad(evaluated[:3].sum(), [next(policy.parameters())], allow_unused=True)
    assert (evaluated[:3] == 0).all() and (gradient is None or not gradient.any())


def test_what_the_task_gives_counts_in_no_figure(policy):
    engine = ask(engine_of(policy, slots=4), range(4), threshold=1.0, scaffold="form")
    for _ in range(5):
        engine.step()
    half = engine.cancel((0, 3))
    assert isinstance(half, Rollout) and (half.length, half.drawn, half.stop) == (8, 5, "cancelled")
    rows = list(drawn(engine).values())
    group = Group.of(0, TASKS[0], [replace(row, score=0.0) for row in rows])
    assert len(rows) == 3 and all((one.length, one.drawn) == (13, 13) for one in group.episodes)
    assert rollout_metrics([group])["length/mean"] == 13 and all(row.length == 16 for row in rows)
    assert tree_metrics(None, [group], (3, 16), [group])["rows/shared_frac"] == 0
    assert all(new_in(call, rows[0]) == 13 for call in (Draw(), Ask(role="r", task=TASKS[0])))
    assert cut_short(half, new_in(Draw(), half)) == half, "a row that was cut short stays a row"


def test_a_scaffold_of_nothing_is_none(policy):
    for sampling in SAMPLINGS[:-3]:
        plain = drawn(ask(engine_of(policy), range(3), **sampling))
        empty = drawn(ask(engine_of(policy), range(3), **sampling, scaffold="empty"))
        assert all(same(empty[key], row) for key, row in plain.items())


def test_an_end_that_is_given_ends_the_text_with_its_own_block_and_no_other():
    policy = tiny(END)
    task = Task(id="t", prompt="01", columns={"form": "3333" + f"3{END}"})
    for row in drawn(ask(engine_of(policy), range(20), task=task, max_length=6, block=2, scaffold="form")).values():
        wrote = row.decisions.place_NS[0, 1:].sort().values.tolist()
        assert wrote in ([0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]) and row.stop == "stop"
        assert (END in row.decisions.token_NS[0, 1:].tolist()) or wrote == [0, 1, 2, 3, 4]
        torch.testing.assert_close(policy.evaluate(row.decisions).logprob_NS[0], row.behavior_S, atol=1e-5, rtol=0)


def test_a_scaffold_that_does_not_fit_is_refused_in_a_sentence(policy):
    for form in (None, "1", "1" * 16, 3):
        engine = ask(engine_of(policy), [0], task=replace(TASKS[0], columns={"form": form}), scaffold="form")
        with pytest.raises(ValueError, match=r"sampling\.scaffold=form.*max_length=16 tokens, <mask> for each"):
            engine.step()


# The trainer.


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_sampler_says_what_the_trainer_says_so_first_ratios_are_exactly_1(policy, sampling):
    rows = list(drawn(ask(engine_of(policy, slots=7), range(20), **sampling)).values())
    decisions, behavior_NS = stacked(rows)
    temperature = sampling.get("temperature", 1.0)
    logprob_NS = policy.evaluate(decisions, temperature=temperature).logprob_NS
    assert logprob_NS.requires_grad and torch.equal((logprob_NS - behavior_NS).exp(), torch.ones_like(behavior_NS))
    some = torch.tensor([11, 3, 17])
    chosen = decisions.select(some)
    few_NS = policy.evaluate(chosen, temperature=temperature).logprob_NS
    assert torch.equal(few_NS, logprob_NS[some, : chosen.shape[1]]), "whatever else is evaluated"
    sequences, widest = policy.extent(decisions)
    assert sequences == int(decisions.passes_N.sum()) and widest == 32


@pytest.mark.parametrize(
    "sampling",
    [
        *SAMPLINGS[1:3],
        {"spread": 0.4, "reviews": 2, "keep": 0.6},
        {"spread": 0.4, "reviews": 2, "keep": 0.6, "in_place": True},
    ],
    ids=str,
)
def test_gradients_go_through_tokens_and_through_the_choice_of_cells(sampling):
    policy = tiny()
    engine = engine_of(policy)
    rows = drawn(ask(engine, range(4), task=Task(id="t", prompt="01"), max_length=3, **sampling)).values()
    decisions, _ = stacked(rows)
    where_NS = decisions.place_NS == WHERE
    weight = policy.model.bert.embeddings.position_embeddings.weight
    review_NS = decisions.there_NS & (decisions.place_NS == REVIEW)
    reviewed = [review_NS] if "reviews" in sampling else []
    for counted_NS in (where_NS, decisions.wrote_NS, *reviewed):

        def total(counted_NS=counted_NS):
            return (policy.evaluate(decisions).logprob_NS.double() * counted_NS).sum()

        policy.zero_grad()
        total().backward()
        grad, size = weight.grad[2].clone(), 1e-3
        assert grad.abs().max() > 1e-3
        for place in grad.abs().topk(3).indices.tolist():
            values = []
            for sign in (1, -1):
                with torch.no_grad():
                    weight[2, place] += sign * size
                    values.append(float(total()))
                    weight[2, place] -= sign * size
            assert (values[0] - values[1]) / (2 * size) == pytest.approx(float(grad[place]), rel=0.03, abs=2e-2)


def test_entropy_is_that_of_each_distribution():
    policy = tiny()
    sampling = {"threshold": 0.5, "spread": 0.4, "max_length": 2}
    (row,) = drawn(ask(engine_of(policy), [0], task=Task(id="t", prompt="31"), **sampling)).values()
    p = probabilities(policy, [MASK, MASK])
    given = MaskedSampling(**sampling)
    chances = [chance for _, chance in choices([max(line) for line in p], [0, 1], given)]
    entropy_S = policy.evaluate(row.decisions, columns=("entropy_NS",)).columns["entropy_NS"][0]
    assert entropy_S[0].item() == pytest.approx(-sum(x * math.log(x) for x in chances), rel=1e-4)
    first = int(row.decisions.place_NS[0, 1])
    assert entropy_S[1].item() == pytest.approx(-sum(x * math.log(x) for x in p[first]), rel=1e-4)


def test_the_entropy_of_a_review_is_that_of_what_it_may_mask():
    policy = tiny()
    sampling = {"threshold": 0.0, "spread": 0.4, "max_length": 2, "reviews": 1, "keep": 0.5}
    row = drawn(ask(engine_of(policy), [0], task=Task(id="t", prompt="31"), **sampling))[0]
    review = int((row.decisions.place_NS[0] == REVIEW).nonzero()[0])
    cells = [MASK, MASK]
    for place, token in zip(
        *(x[0, :review].tolist() for x in (row.decisions.place_NS, row.decisions.token_NS)), strict=True
    ):
        if place >= 0:
            cells[place] = token
    chances = [chance for _, chance in reviews(policy, MaskedSampling(**sampling), cells)]
    entropy_S = policy.evaluate(row.decisions, columns=("entropy_NS",)).columns["entropy_NS"][0]
    assert entropy_S[review].item() == pytest.approx(-sum(x * math.log(x) for x in chances), rel=1e-4)


# As an engine.


def test_a_text_is_the_same_whatever_is_drawn_beside_it(policy):
    many = drawn(ask(engine_of(policy, slots=16), range(20), spread=0.2))
    engine = ask(engine_of(policy, slots=3), [5], spread=0.2)
    engine.step()
    few = drawn(ask(ask(engine, [13, 2], spread=0.2), [100], block=3, task=TASKS[3], temperature=0.5))
    assert all(same(few[sample], many[sample]) for sample in (5, 13, 2)) and not same(many[0], many[1])


@pytest.mark.parametrize(
    "sampling", [{"spread": 0.2}, {"block": 4, "threshold": 0.6}, SAMPLINGS[5], SAMPLINGS[-2]], ids=str
)
def test_an_engine_resumed_at_any_step_goes_on_to_the_same_bits(policy, sampling):
    expected = drawn(ask(engine_of(policy, slots=3), range(5), **sampling))
    whole = ask(engine_of(policy, slots=3), range(5), **sampling)
    ended, steps = {}, 0
    while whole.in_flight:
        resumed = engine_of(policy, slots=3)
        resumed.load_state_dict(pickle.loads(pickle.dumps(whole.state_dict())))
        found = ended | drawn(resumed)
        assert found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
        ended |= {item.key[1]: item.rollout for item in whole.step()}
        steps += 1
    assert steps > 4


def test_new_weights_count_from_the_next_pass_on_and_each_decision_says_whose_it_is(policy):
    engine = ask(engine_of(policy), range(2), threshold=1.0)
    engine.step()
    engine.load(1, {name: weight + 0.02 for name, weight in policy.weights().items()})
    rows = drawn(engine)
    assert rows[0].version_S.tolist() == [0] + [1] * 15 and rows[0].oldest == 0


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_copy_in_another_precision_differs_within_its_tolerance_and_can_be_read(policy, precision):
    engine = ask(engine_of(policy, precision=precision), range(12), threshold=1.0, task=Sudoku(clues=1)[0])
    assert engine.manifest(tensors(policy)) == engine.reading().prints
    rows = list(drawn(engine).values())
    decisions, behavior_NS = stacked(rows)
    gap = (policy.evaluate(decisions).logprob_NS - behavior_NS).abs().mean().item()
    assert 1e-3 < gap < TOLERANCE[precision]
    torch.testing.assert_close(engine.score(rows[0]), rows[0].behavior_S, atol=5e-2, rtol=0)
    wrong = {name: 1.01 * weight for name, weight in policy.state_dict(keep_vars=True).items()}
    assert engine.manifest(wrong) != engine.reading().prints


def test_what_is_cancelled_comes_back_as_far_as_it_was_filled_in(policy):
    engine = ask(engine_of(policy, slots=1), range(2), threshold=1.0)
    engine.step()
    assert [f.rollout.length for f in engine.partial_rollouts()] == [1]
    row = engine.cancel((0, 0))
    assert row.length == 1 and row.stop == "cancelled" and len(row.text) == 1
    assert engine.cancel((0, 1)) is None and not engine.in_flight


def test_a_text_ends_with_the_block_of_its_end_and_counts_tokens_up_to_it():
    policy = tiny(END)
    rows = drawn(ask(engine_of(policy), range(60), task=Task(id="t", prompt="01"), max_length=4, block=2)).values()
    early = [row for row in rows if row.stop == "stop" and int(row.decisions.place_NS.max()) == 1]
    late = [row for row in rows if row.stop == "length"]
    assert early and late
    for row in rows:
        cells = dict(sorted(zip(row.decisions.place_NS[0].tolist(), row.decisions.token_NS[0].tolist(), strict=True)))
        written = list(cells.values())
        end = written.index(END) if END in written else None
        assert row.text == "".join(map(str, written[:end])) and (row.stop == "stop") == (end is not None)
        assert int(row.decisions.tokens_N) == (len(written) if end is None else end + 1)


def test_samplings_that_are_none_are_refused(policy):
    for wrong, said in (
        ({"block": -1}, "block"),
        ({"threshold": 1.5}, "threshold"),
        ({"spread": -0.1}, "spread"),
        ({"keep": 1.5}, "keep"),
        ({"reviews": -1}, "reviews"),
        ({"in_place": True}, r"in_place=true.*sampling\.reviews=1"),
        ({"reviews": 1, "block": 4}, r"block=4 fills them in by parts: leave one of them out"),
        (
            {"reviews": 1, "max_length": 5, "blocks": (4, 1)},
            r"blocks=\(4, 1\) fills them in by parts: leave one of them",
        ),
        ({"blocks": (4, 16)}, r"blocks is \(4, 16\), whose sum must reach sampling\.max_length=64"),
        ({"blocks": (4, 0, 60)}, r"blocks is \(4, 0, 60\).*at least 1"),
        ({"blocks": (4, 60), "block": 4}, r"blocks is \(4, 60\).*sampling\.block=0 \(it is 4\)"),
    ):
        with pytest.raises(ValueError, match=rf"sampling\.{said}"):
            MaskedSampling(**wrong)
    with pytest.raises(ValueError, match=r"lower sampling\.max_length"):
        policy.accepts(replace(TASKS[0], prompt="1" * 17), 16)
    from gimbal.policies.token import Sampling

    engine = engine_of(policy)
    with pytest.raises(ValueError, match="MaskedSampling"):
        engine.submit(Request(group=0, task=TASKS[0], sample=0, sampling=Sampling(), seed=0))
