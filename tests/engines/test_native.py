"""The native engine against transformers' own generate and full forward passes, on small random models."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from gimbal.engines.base import Request
from gimbal.engines.native import Native
from gimbal.policies.token import Sampling, TokenPolicy, Tokens
from gimbal.records import Task

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = 3  # a letter that the random models like to draw
CONFIGS = {
    "qwen3": Qwen3Config(
        vocab_size=27, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, max_position_embeddings=128,
    ),
    "llama": LlamaConfig(
        vocab_size=27, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128,
    ),
    "gpt2": GPT2Config(vocab_size=27, n_embd=32, n_layer=2, n_head=4, n_positions=128),
}  # fmt: skip


def policy(family="qwen3", seed=0):
    tokenizer = Tokenizer(models.WordLevel({"$": 0, **{c: i + 1 for i, c in enumerate(LETTERS)}}, unk_token="$"))
    from tokenizers import decoders, pre_tokenizers

    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(deepcopy(CONFIGS[family])).eval()
        for name, p in model.named_parameters():
            # Random models are nearly indifferent; wider weights make choices and mistakes visible.
            if p.ndim > 1:
                p.data.mul_(6.0 if "embed" not in name and "wte" not in name else 20.0)
    model.generation_config.eos_token_id = END
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="$", pad_token="$")
    return TokenPolicy(model, fast)


def prompts(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 20, (count,), generator=g).tolist()
    return ["".join(LETTERS[i] for i in torch.randint(0, 26, (n,), generator=g).tolist()) for n in lengths]


def request(prompt, group=0, sample=0, seed=0, **sampling):
    task = Task(id=f"task {group}", prompt=prompt)
    return Request(
        group=group, task=task, sample=sample, sampling=Sampling(**({"max_length": 16} | sampling)), seed=seed
    )


def engine(p, **spec):
    e = Native(**({"slots": 8, "precision": "float32"} | spec)).start(p)
    e.load(0, p.state_dict())
    return e


def drain(e):
    out = []
    while e.in_flight:
        out += e.step()
    assert len({f.key for f in out}) == len(out), "a request came out twice"
    return {f.key: f.rollout for f in out}


def ids(rollout):
    return rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :].tolist()


@pytest.mark.parametrize(
    ("family", "attention"), [*((family, "sdpa") for family in sorted(CONFIGS)), ("qwen3", "eager")]
)
def test_greedy_tokens_of_100_ragged_prompts_are_generates(family, attention):
    p = policy(family)
    p.model.set_attn_implementation(attention)
    e = engine(p, slots=16)
    texts = prompts(100)
    for i, text in enumerate(texts):
        e.submit(request(text, group=i, temperature=0.0))
    ours = drain(e)
    assert len(ours) == 100
    for length in {len(text) for text in texts}:  # of one length: padding would change the bits
        rows = [i for i, text in enumerate(texts) if len(text) == length]
        x = torch.tensor([p.tokenizer.encode(texts[i]) for i in rows])
        theirs = p.model.generate(x, max_new_tokens=16, do_sample=False, pad_token_id=0)[:, x.shape[1] :].tolist()
        for i, row in zip(rows, theirs, strict=True):
            drawn = ids(ours[i, 0])
            assert row == drawn + [0] * (len(row) - len(drawn)), texts[i]
            assert len(drawn) == 16 or drawn[-1] == END


@pytest.mark.parametrize("cache", ["keep", "recompute"])
def test_a_prompt_of_one_token(cache):
    p = policy()
    e = engine(p, cache=cache)
    letter = next(c for c in "?=1a" if len(p.tokenizer.encode(c)) == 1)
    for sample in range(3):
        e.submit(request(letter, sample=sample, min_p=0.0))
    e.step()
    e.load(1, p.state_dict())
    for rollout in drain(e).values():
        torch.testing.assert_close(rollout.behavior_S, e.score(rollout), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.7}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1, "temperature": 1.3}]
)
def test_recorded_log_probabilities_are_of_the_distribution_sampled_from(sampling):
    p = policy()
    e = engine(p, entropy=True)
    for i, text in enumerate(prompts(20)):
        e.submit(request(text, group=i, **sampling))
    for rollout in drain(e).values():
        tokens = rollout.decisions
        first = int(tokens.prompt_N[0])
        with torch.no_grad():
            logits = p.model(tokens.ids_NL).logits[0, first - 1 : -1].double() / sampling.get("temperature", 1.0)
        # The definitions, one row at a time.
        for row in logits:
            order = row.argsort(descending=True)
            keep = torch.zeros_like(row, dtype=torch.bool)
            keep[order[: sampling.get("top_k", len(row))]] = True
            mass = 0.0
            for index in order.tolist():
                if mass >= sampling.get("top_p", 1.1):
                    keep[index] = False
                mass += row.softmax(-1)[index].item()
            keep &= row.softmax(-1) >= sampling.get("min_p", 0.0) * row.softmax(-1).max()
            row[~keep] = -torch.inf
        expected = logits.log_softmax(-1).gather(-1, tokens.ids_NL[0, first:, None])[:, 0]
        torch.testing.assert_close(rollout.behavior_S.double(), expected, atol=1e-4, rtol=0)
        entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
        torch.testing.assert_close(rollout.entropy_S.double(), entropy, atol=1e-4, rtol=0)
        torch.testing.assert_close(e.score(rollout).double(), expected, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_sampling_frequencies_by_chi_square():
    p, draws = policy(), 4000
    e = engine(p, slots=256)
    for i in range(draws):
        e.submit(request("abc", group=0, sample=i, max_length=1))
    counts = Counter(ids(r)[0] for r in drain(e).values())
    with torch.no_grad():
        probability = p.model(torch.tensor([p.tokenizer.encode("abc")])).logits[0, -1].softmax(-1)
    likely = [i for i in range(27) if probability[i] * draws >= 5]
    statistic = sum((counts[i] - draws * probability[i].item()) ** 2 / (draws * probability[i].item()) for i in likely)
    # 99.9% points of chi-square: 26 degrees of freedom 54.1; fewer cells, less.
    assert statistic < 54.1, statistic
    assert sum(counts[i] for i in likely) > 0.98 * draws


def test_a_text_does_not_depend_on_its_neighbours():
    p = policy()
    alone = engine(p)
    alone.submit(request("hello", group=3, sample=2, seed=5))
    crowd = engine(p, slots=5)
    for i, text in enumerate(prompts(9, seed=4)):
        crowd.submit(request(text, group=10 + i, seed=5))
    crowd.submit(request("hello", group=3, sample=2, seed=5))
    first, second = drain(alone)[3, 2], drain(crowd)[3, 2]
    assert ids(first) == ids(second)
    torch.testing.assert_close(first.behavior_S, second.behavior_S, atol=1e-5, rtol=0)
    other_seed = engine(p)
    other_seed.submit(request("hello", group=3, sample=2, seed=6))
    assert ids(drain(other_seed)[3, 2]) != ids(first)


def test_members_of_a_group_share_a_prefill_and_differ_in_their_draws():
    p = policy()
    e, calls = engine(p, slots=3), []
    prefill = e._prefill
    e._prefill = lambda sequences, *images: calls.append(len(sequences)) or prefill(sequences, *images)
    for sample in range(7):  # more than fit at once
        e.submit(request("shared", group=1, sample=sample))
    rollouts = drain(e)
    assert sum(calls) == 1 and len(rollouts) == 7
    assert len({tuple(ids(r)) for r in rollouts.values()}) > 1


def test_stops_and_lengths():
    p = policy()
    e = engine(p)
    for i, text in enumerate(prompts(40)):
        e.submit(request(text, group=i, max_length=12))
    rollouts = drain(e).values()
    assert {r.stop for r in rollouts} == {"stop", "length"}
    for r in rollouts:
        r.validate()
        assert (ids(r)[-1] == END) == (r.stop == "stop") and END not in ids(r)[:-1]
        assert r.length <= 12 and (r.stop == "stop" or r.length == 12)


def test_stop_strings_end_a_rollout_at_the_token_that_completes_them():
    p = policy()
    plain = engine(p)
    plain.submit(request("abc", max_length=12, seed=3))
    whole = drain(plain)[0, 0]
    stop = whole.text[2:4]
    e = engine(p)
    e.submit(request("abc", max_length=12, seed=3, stop=(stop,)))
    cut = drain(e)[0, 0]
    assert cut.stop == "stop" and cut.text == whole.text[: whole.text.index(stop) + 2]


def test_cancel_gives_back_what_was_drawn():
    p = policy()
    e = engine(p, slots=2)
    for sample in range(3):
        e.submit(request("abcdef", sample=sample, max_length=30))
    for _ in range(3):
        e.step()
    assert e.cancel((0, 2)) is None  # still queued
    drawn = e.cancel((0, 0))
    assert drawn is None or (drawn.stop == "cancelled" and drawn.length == 3)
    assert set(drain(e)) <= {(0, 1)}


def test_a_rollout_goes_on_from_the_first_decisions_of_another():
    p = policy()
    e = engine(p, slots=4)
    e.submit(request("fork", max_length=12, seed=1))
    parent = drain(e)[0, 0]
    e.load(1, p.state_dict())
    e.extend(request("fork", sample=1, max_length=12, seed=1), parent, first=3)
    child = drain(e)[0, 1]
    assert ids(child)[:3] == ids(parent)[:3]
    assert torch.equal(child.behavior_S[:3], parent.behavior_S[:3])
    assert child.version_S[:3].tolist() == [0, 0, 0] and set(child.version_S[3:].tolist()) == {1}
    torch.testing.assert_close(e.score(child), child.behavior_S, atol=1e-4, rtol=0)


@pytest.mark.parametrize("cache", ["keep", "recompute"])
def test_weights_loaded_in_flight_draw_the_later_decisions(cache):
    p, new = policy(), policy(seed=1)
    e = engine(p, cache=cache)
    for i, text in enumerate(prompts(6)):
        e.submit(request(text, group=i, max_length=20, min_p=0.0))
    early = []
    for _ in range(4):
        early += e.step()
    e.load(1, new.state_dict())
    for rollout in drain(e).values():
        versions = rollout.version_S.tolist()
        assert versions == [0] * min(4, len(versions)) + [1] * max(0, len(versions) - 4)
        later = e.score(rollout)[4:]  # under the new weights throughout
        if cache == "recompute":
            torch.testing.assert_close(rollout.behavior_S[4:], later, atol=1e-4, rtol=0)
        elif len(later):
            assert (rollout.behavior_S[4:] - later).abs().max() > 1e-3


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions_are_near_and_not_equal_and_reproducible(precision):
    p = policy()
    coarse = engine(p, precision=precision)
    for i, text in enumerate(prompts(12)):
        coarse.submit(request(text, group=i))
    gaps = []
    for rollout in drain(coarse).values():
        exact = p.evaluate(rollout.decisions).logprob_NS[0].detach()
        gaps.append((rollout.behavior_S - exact).abs().mean().item())
        torch.testing.assert_close(coarse.score(rollout), engine(p, precision=precision).score(rollout))
    assert 1e-4 < sum(gaps) / len(gaps) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["keep", "recompute"])
def test_an_engine_goes_on_from_its_state_to_the_same_bits(cache):
    p, new = policy(), policy(seed=1)

    def begun():
        e = engine(p, slots=4, cache=cache, precision="bfloat16", entropy=True)
        for i, text in enumerate(prompts(4)):
            for sample in range(3):
                e.submit(request(text, group=i, sample=sample, max_length=20))
        done = {}
        for step in range(9):
            done |= {f.key: f.rollout for f in e.step()}
            if step == 5:
                e.load(1, new.state_dict())
        return e, done

    whole, done = begun()
    rest = drain(whole)
    cut, _ = begun()
    resumed = Native(slots=4, cache=cache, precision="bfloat16", entropy=True).start(p)
    resumed.load(1, new.state_dict())
    resumed.load_state_dict(cut.state_dict())
    again = drain(resumed)
    assert rest.keys() == again.keys() and not rest.keys() & done.keys()
    for key, rollout in rest.items():
        assert ids(rollout) == ids(again[key])
        assert torch.equal(rollout.behavior_S, again[key].behavior_S)
        assert torch.equal(rollout.entropy_S, again[key].entropy_S)
        assert torch.equal(rollout.version_S, again[key].version_S)


def test_weights_that_do_not_fit_are_refused():
    p = policy()
    state = dict(p.state_dict())
    state["model.model.layers.0.self_attn.q_proj.weight"] = torch.zeros(3, 3)
    with pytest.raises(ValueError, match="do not fit"):
        engine(p).load(1, state)


def test_scores_of_foreign_text():
    p = policy()
    e = engine(p)
    e.submit(request("abc"))
    rollout = drain(e)[0, 0]
    columns = {name: getattr(rollout, name)[:2] for name in ("behavior_S", "version_S", "mask_S", "reward_S")}
    foreign = replace(rollout, decisions=Tokens.row([1, 2, 3], [4, 5]), **columns)
    expected = p.evaluate(foreign.decisions).logprob_NS[0].detach()
    torch.testing.assert_close(e.score(foreign), expected, atol=1e-4, rtol=0)


def test_a_prompt_known_from_a_shorter_rollout_has_room():
    """The cache grows also when nothing is prefilled: the same prompt again, with a longer limit."""
    short = request("abcabc", max_length=2, temperature=0.0)
    long = request("abcabc", group=1, max_length=60, temperature=0.0)
    endless = policy()
    endless.model.generation_config.eos_token_id = 0  # which it never draws
    engine = Native(slots=2, precision="float32").start(endless)
    engine.load(0, endless.state_dict())
    drawn = []
    for item in (short, long):
        engine.submit(item)
        while engine.in_flight:
            drawn += [finished.rollout for finished in engine.step()]
    assert drawn[1].length == 60
    torch.testing.assert_close(drawn[1].behavior_S, engine.score(drawn[1]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_what_a_rollout_reads_does_not_depend_on_rows_that_are_gone(precision):
    """The cache has grown for an earlier, longer rollout; numbers are those of a fresh engine, at every length."""
    spec, trained = Native(slots=2, precision=precision), policy()
    for length in (12, 30):
        engines = [spec.start(trained) for _ in range(2)]
        for engine, earlier in zip(engines, (True, False), strict=True):
            engine.load(0, trained.state_dict())
            if earlier:
                engine.submit(request("a" * 20, group=9, max_length=61))
                while engine.in_flight:
                    engine.step()
            engine.submit(request("bcdefghijklmno", group=1, max_length=length))
        assert engines[0].slots.capacity > 0
        rollouts = []
        for engine in engines:
            finished = []
            while engine.in_flight:
                finished += engine.step()
            rollouts.append(finished[0].rollout)
        assert engines[0].slots.capacity > engines[1].slots.capacity
        assert torch.equal(rollouts[0].behavior_S, rollouts[1].behavior_S)


def test_a_resumed_engine_has_its_matrices_where_they_were():
    trained = policy()
    engine, other = (Native(slots=2).start(trained) for _ in range(2))
    for one in (engine, other):
        one.load(0, trained.state_dict())
    engine.submit(request("a" * 20, max_length=61))
    while engine.in_flight:
        engine.step()
    engine.load(1, trained.state_dict())  # nothing is left but how large it has grown
    for resumed in (other, Native(slots=2).start(trained)):  # ... which is kept from one resumption to the next
        resumed.load(1, trained.state_dict())
        resumed.load_state_dict((engine if resumed is other else other).state_dict())
        assert resumed.state_dict()["room"] == engine.state_dict()["room"]
    for one in (engine, resumed):
        one.submit(request("abc", max_length=5))
        one.step()
    assert engine.slots.capacity == resumed.slots.capacity > 0
    with pytest.raises(ValueError, match=r"3 rollouts are in progress but engine\.slots is 2"):
        resumed.load_state_dict(engine.state_dict() | {"rows": [{}, {}, {}]})
