"""Rows that share what they begin with give the log-probabilities and gradients of rows by themselves."""

import copy
import random
import sys
from pathlib import Path

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

sys.path.insert(0, str(Path(__file__).parent.parent / "engines"))
from test_native import CONFIGS, policy

from gimbal.dataflow.packing import micro_batches
from gimbal.policies.layout import UNLIMITED, Sharing, laid, planned
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import TrainBatch

ROWS = [([1, 2, 3], [4, 5]), ([1, 2, 3], [6]), ([7, 8], [9, 1, 2, 3]), ([1, 2, 3], [4, 5, 6]), ([7, 8], [9])]
# A fork in a fork, two alike, none drawn, one the beginning of another, one of another prompt that begins like this one.
DEEP = [([1, 2, 3], [4, 5, 6, 7]), ([1, 2, 3], [4, 5, 8, 7]), ([1, 2, 3], [4, 9]), ([1, 2, 3], [4, 5, 8, 7])]
DEEP += [([1, 2, 3], []), ([1, 2, 3], [4, 5]), ([1, 2], [9, 3, 4])]
WAYS = {"apart": None, "mask": Sharing(), "pieces": Sharing(deepest=99)}


def decisions_of(rows):
    return Tokens.stack([Tokens.row(prompt, drawn) for prompt, drawn in rows])


def evaluated(p, way, rows, **asked):
    p.__dict__["shares"] = WAYS[way]
    try:
        evaluation = p.evaluate(decisions_of(rows), columns=["entropy_NS", "hidden_NSH"], **asked)
        weights = torch.arange(evaluation.logprob_NS.numel()).view_as(evaluation.logprob_NS) + 1.0
        parameters = [weight for weight in p.parameters() if weight.requires_grad]
        gradients = torch.autograd.grad((evaluation.logprob_NS * weights).sum(), parameters)
        return evaluation, gradients
    finally:
        del p.__dict__["shares"]


def check_equal(found, wanted, bound=1e-5):
    (one, grads), (two, grads_2) = found, wanted
    torch.testing.assert_close(one.logprob_NS, two.logprob_NS, atol=bound, rtol=bound)
    for name in ("entropy_NS", "hidden_NSH"):
        torch.testing.assert_close(one.columns[name], two.columns[name], atol=bound, rtol=bound)
    scale = max(g.abs().max() for g in grads_2)
    for a, b in zip(grads, grads_2, strict=True):
        torch.testing.assert_close(a / scale, b / scale, atol=bound, rtol=0)


@pytest.mark.parametrize("way", ["mask", "pieces"])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_sharing_changes_nothing(family, way):
    p = policy(family).double()
    for rows in (ROWS, DEEP):
        check_equal(evaluated(p, way, rows), evaluated(p, "apart", rows), 1e-6)


def drawn_tree(seed):
    """Rows of two prompts that fork anywhere, of 3 kinds of tokens, so that much is shared by chance too."""
    rng = random.Random(seed)
    prompts = [[rng.randrange(3) for _ in range(rng.randrange(1, 6))] for _ in range(2)]
    rows = []
    for _ in range(rng.randrange(1, 9)):
        prompt, drawn = rng.choice(rows) if rows and rng.random() < 0.6 else (rng.choice(prompts), [])
        kept = drawn[: rng.randrange(len(drawn) + 1)]
        rows.append((prompt, kept + [rng.randrange(3) for _ in range(rng.randrange(6))]))
    return rows if any(drawn for _, drawn in rows) else [([1, 2], [0]), *rows]


@pytest.mark.parametrize("way", ["mask", "pieces"])
def test_any_tree_changes_nothing(way):
    p = policy("qwen3").double()
    for seed in range(12):
        rows = drawn_tree(seed)
        check_equal(evaluated(p, way, rows), evaluated(p, "apart", rows), 1e-6)


def test_no_beginning_is_laid_out_twice():
    """As many columns as there are different beginnings; each at its depth, after its own, and seen by what follows on it alone."""
    for seed in range(40):
        decisions = decisions_of(drawn_tree(seed))
        layout = laid(*decisions.where, Sharing(deepest=99))
        if layout.end_RL is None:
            continue
        paths = planned(*decisions.where, Sharing(deepest=99)).paths
        beginnings = {tuple(path[:n]) for path in paths for n in range(1, len(path) + 1)}
        ids, position, end = (x[0].tolist() for x in (layout.ids_RL, layout.position_RL, layout.end_RL))
        seen = [tuple(ids[k] for k in range(q + 1) if q < end[k]) for q in range(len(ids))]
        assert len(seen) == len(beginnings) and set(seen) == beginnings
        assert [len(beginning) - 1 for beginning in seen] == position
        drawn = [
            (n, at) for n, (first, stop) in enumerate(zip(*(x.tolist() for x in decisions.where[1:3]), strict=True))
            for at in range(first, stop)
        ]  # fmt: skip
        for (n, at), column in zip(drawn, layout.column_K.tolist(), strict=True):
            assert seen[column] == tuple(paths[n][:at]), "a decision is predicted by what came before it"


def test_a_shared_decision_is_paid_by_each_of_its_rows():
    p = policy("qwen3").double()
    rows = [([1, 2, 3], [4, 5, 6]), ([1, 2, 3], [4, 5, 7]), ([1, 2, 3], [4, 8])]
    p.__dict__["shares"] = WAYS["pieces"]
    logprob_NS = p.evaluate(decisions_of(rows)).logprob_NS
    weight = p.model.get_output_embeddings().weight
    (both,) = torch.autograd.grad(2.0 * logprob_NS[0, 0] - 5.0 * logprob_NS[1, 0], weight, retain_graph=True)
    (one,) = torch.autograd.grad(-3.0 * logprob_NS[2, 0], weight)
    torch.testing.assert_close(both, one)


def test_what_shares_nothing_worth_it_stays_by_itself():
    lone = decisions_of([([1], [2]), ([3], [4])])
    assert laid(*lone.where, Sharing(deepest=99)).end_RL is None
    little = decisions_of([([1, n], list(range(40, 60))) for n in (2, 3)])  # one token of 42
    assert laid(*little.where, Sharing(deepest=99)).end_RL is None


def test_behind_a_mask_each_prompt_has_its_sequence():
    layout = laid(*decisions_of(ROWS).where, Sharing())
    assert layout.ids_RL[0].tolist() == [1, 2, 3, 4, 5] and layout.ids_RL.shape == (2, 5)
    assert not layout.pieces and layout.prompt_R == (0, 2)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_shared_prompt_is_seen_through_any_attention(attention):
    p = copy.deepcopy(policy("qwen3")).double()  # the configuration is shared by all of its family
    p.model.set_attn_implementation(attention)
    assert p.shares.deepest == (UNLIMITED if attention == "sdpa" else 0)
    check_equal(evaluated(p, "mask", DEEP), evaluated(p, "apart", DEEP), 1e-6)


@pytest.mark.parametrize("compute", [None, torch.bfloat16])
def test_checkpointed_blocks_see_the_same_tree(compute):
    """They are called again in the backward pass, when the forward pass is long over."""
    p = copy.deepcopy(policy("qwen3"))
    p.compute = compute
    bound = 1e-6 if compute is None else 0.02
    plain = evaluated(p, "pieces", DEEP)
    check_equal(plain, evaluated(p, "apart", DEEP), 1e-5 if compute is None else 0.05)
    check_equal(evaluated(p, "pieces", DEEP, checkpointing=True), plain, bound)


def test_beyond_a_window_rows_stand_behind_a_mask_that_has_it():
    config = MistralConfig(
        vocab_size=97, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=16,
    )  # fmt: skip
    torch.manual_seed(0)
    p = TokenPolicy(MistralForCausalLM(config).double(), None)
    assert p.shares == Sharing(deepest=16)
    for longest in (16, 40):
        rows = [([1, 2, 3, 4], list(range(5, longest + end))) for end in (2, 1, 0)]
        rows.append(([1, 2, 3, 4], [5, 6, 7, 50, 51]))
        layout = laid(*decisions_of(rows).where, p.shares)
        assert layout.end_RL is not None and bool(layout.pieces) == (longest == 16)
        with torch.no_grad():
            found = p.evaluate(decisions_of(rows)).logprob_NS
            p.__dict__["shares"] = None
            torch.testing.assert_close(p.evaluate(decisions_of(rows)).logprob_NS, found, atol=1e-5, rtol=0)
            del p.__dict__["shares"]


def test_micro_batches_count_what_is_shared_once():
    """64 rows behind one prompt of 50 fit where their tree does; where nothing is shared they are cut; too large a tree is halved."""
    rows = [(list(range(50)), [50 + n % 7, n, n]) for n in range(64)]
    batch = TrainBatch(
        mask_NS=torch.ones(64, 3).bool(), decisions=decisions_of(rows), group_N=torch.zeros(64, dtype=torch.long)
    )
    p = policy("qwen3")
    cut = {}
    for way in ("apart", "pieces"):
        p.__dict__["shares"] = WAYS[way]
        cut[way] = [micro.shape[0] for micro in micro_batches(batch, 200, extent=p.extent)]
        halved = [micro.shape[0] for micro in micro_batches(batch, 100, extent=p.extent)]
        assert sum(halved) == 64 and len(halved) > len(cut[way])
    del p.__dict__["shares"]
    assert cut["pieces"] == [64] and len(cut["apart"]) > 16


def test_a_batch_that_fits_where_all_its_groups_share_is_one_pass():
    """As of games, whose matches come by the same texts; and rows that are in no group are cut by themselves."""
    rows = [(list(range(50)), [50 + n % 7, n, n]) for n in range(64)]
    mask_NS = torch.ones(64, 3).bool()
    batch = TrainBatch(mask_NS=mask_NS, decisions=decisions_of(rows), group_N=torch.arange(64) // 2)
    p = policy("qwen3")
    p.__dict__["shares"] = WAYS["pieces"]
    whole = micro_batches(batch, 200, extent=p.extent)
    alone = micro_batches(TrainBatch(mask_NS=mask_NS, decisions=batch.decisions), 100, extent=p.extent)
    del p.__dict__["shares"]
    assert len(whole) == 1 and whole[0] is batch
    assert len(alone) > 1 and sum(micro.shape[0] for micro in alone) == 64
