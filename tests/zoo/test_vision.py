"""Tasks with images, from files to the gradient in the vision tower; transformers' own forward pass and ``generate`` are the judge."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor
from vision import picture, saved_llava

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal import cli, config
from gimbal.critics.tokens import TrunkValue
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.engines.vllm import VLLM
from gimbal.environments.dataset import Rows
from gimbal.learning.optimization import Optimization
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Task
from gimbal.runtime import checkpoint, compose
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.ray import Ray
from gimbal.workflows.branching import Branching

LENGTH = 10
WORDS = [{"role": "user", "content": "What colour is it?"}]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vision")
    saved_llava(directory / "model")
    for n in range(4):
        picture(directory / f"{n}.png", n)
    return directory


@pytest.fixture(scope="module")
def spec(place):
    return CausalLM(model=str(place / "model"))


def tasks(place):
    """The same words about each of two images, two images at once, a prompt of text that says where its image belongs, and none."""
    paths = [str(place / f"{n}.png") for n in range(4)]
    return Rows(
        rows=[
            {"prompt": WORDS, "images": paths[:1]},
            {"prompt": WORDS, "images": paths[1:2]},
            {"prompt": WORDS, "images": paths[2:]},
            {"prompt": "<image>It is", "images": paths[:1]},
            {"prompt": "5 + 6 ="},
        ]
    )


def drawn(policy, place, samples=3, temperature=1.0):
    engine = Native(slots=4, precision="float32").start(policy)  # fewer than rows, so that neighbours change
    engine.load(0, policy.weights())
    asked = tasks(place)
    for index in range(len(asked)):
        for sample in range(samples):
            sampling = Sampling(max_length=LENGTH, temperature=temperature)
            engine.submit(Request(group=index, task=asked[index], sample=sample, sampling=sampling, seed=0))
    found = {key: item.rollout for key, item in sorted(drained(engine).items())}
    return engine, found


def ids_of(rollout):
    tokens = rollout.decisions
    first = int(tokens.prompt_N[0])
    return tokens.ids_NL[0, :first], tokens.ids_NL[0, first:]


def shown(policy, rollout):
    """Pixels by the processor, from the files."""
    pictures = [Image.open(path).convert("RGB") for path in rollout.task.columns.get("images", [])]
    return policy.images.processor.image_processor(images=pictures, return_tensors="pt") if pictures else {}


def test_prompts_are_the_processors(spec, place):
    policy, processor, asked = spec.load(), AutoProcessor.from_pretrained(spec.model), tasks(place)
    for index, places in ((0, 1), (2, 2)):
        content = [{"type": "image"}] * places + [{"type": "text", "text": "What colour is it?"}]
        chat = [{"role": "user", "content": content}]
        text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        pictures = [Image.open(path) for path in asked[index].columns["images"]]
        theirs = processor(text=[text], images=pictures, add_special_tokens=False)["input_ids"][0]
        assert policy.encode_task(asked[index]) == theirs
        assert theirs.count(policy.model.config.image_token_id) == 4 * places, "four patches an image"


def test_the_engine_sees_images_as_transformers_does(spec, place):
    policy = spec.load()
    plain, token = AutoModelForImageTextToText.from_pretrained(spec.model), policy.model.config.image_token_id
    engine, rollouts = drawn(policy, place)
    for rollout in rollouts.values():
        prompt, ids = ids_of(rollout)
        with torch.no_grad():
            logits = plain(input_ids=rollout.decisions.ids_NL, **shown(policy, rollout)).logits[0, len(prompt) - 1 : -1]
        logits[:, token] = -torch.inf  # nobody may draw what stands for an image
        expected = logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]
        torch.testing.assert_close(rollout.behavior_S, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(engine.score(rollout), expected, atol=1e-5, rtol=0)
    _, greedy = drawn(policy, place, samples=1, temperature=0.0)
    for rollout in greedy.values():
        prompt, ids = ids_of(rollout)
        theirs = plain.generate(
            input_ids=prompt[None], attention_mask=torch.ones_like(prompt)[None], **shown(policy, rollout), max_new_tokens=LENGTH,
            do_sample=False, suppress_tokens=[token], pad_token_id=0,
        )  # fmt: skip
        assert ids.tolist() == theirs[0, len(prompt) :].tolist()
    assert ids_of(greedy[0, 0])[1].tolist() != ids_of(greedy[1, 0])[1].tolist(), "the same words about another image"


def test_the_trainer_sees_each_rows_own_images(spec, place):
    policy = spec.load()
    _, rollouts = drawn(policy, place)
    rows = list(rollouts.values())
    batch = Tokens.stack([rollout.decisions for rollout in rows])
    for tokens, chosen in ((batch, rows), (batch.select(torch.tensor([4, 0, 9])), [rows[4], rows[0], rows[9]])):
        with torch.no_grad():
            found = policy.evaluate(tokens, columns=["entropy_NS"])
        for n, rollout in enumerate(chosen):
            torch.testing.assert_close(found.logprob_NS[n, : rollout.length], rollout.behavior_S, atol=1e-5, rtol=0)
        assert torch.isfinite(found.columns["entropy_NS"]).all()
    turned = replace(batch, images_N=tuple(paths[::-1] for paths in batch.pictures_N))
    swapped = replace(batch, images_N=(*batch.images_N[3:6], *batch.images_N[:3], *batch.images_N[6:]))
    with torch.no_grad():
        plain = policy.evaluate(batch).logprob_NS
        order, image = ((policy.evaluate(tokens).logprob_NS - plain).abs().amax(1) for tokens in (turned, swapped))
    assert (order[6:9] > 1e-3).all() and (order[:6] < 1e-5).all(), "two images the other way round"
    assert (image[:6] > 1e-3).all() and (image[6:] < 1e-5).all(), "another image, another log-probability"


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True])
def test_two_steps_move_the_vision_tower_unless_it_is_frozen(spec, place, frozen, tmp_path, single_thread):
    run = small_run(
        policy=replace(spec, freeze_vision_tower=frozen),
        tasks=tasks(place),
        sampling=Sampling(max_length=LENGTH),
        optimization=Optimization(learning_rate=1e-3),
        prompts_per_step=5,
        steps=2,
        checkpoint_every=1,
        record_every=1,
    )
    run_local(run, tmp_path)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["mismatch/logp_diff_max"] < 1e-4 and row["grad_norm"] > 0
    before, after = spec.load().state_dict(), run.policy.at(tmp_path / "model").load().state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any("language_model" in name for name in moved) and any("multi_modal_projector" in name for name in moved)
    assert any("vision_tower" in name for name in moved) is not frozen
    assert AutoProcessor.from_pretrained(tmp_path / "model").image_token == "<image>"
    whole = AutoModelForImageTextToText.from_pretrained(tmp_path / "model").state_dict()
    assert all(torch.equal(tensor, after[f"model.{name}"]) for name, tensor in whole.items())
    assert b"0.png" in (tmp_path / "checkpoints/step_000002/state.pt").read_bytes(), "images travel by their paths"


@pytest.mark.slow
def test_an_adapter_is_exported_alone_and_merged(spec, place, tmp_path, single_thread):
    """The merged model is LLaVA's own class with its processor, and evaluates as the adapted one; the adapter resumes as it was."""
    run = small_run(
        policy=replace(spec, lora=LoRA(rank=2)), tasks=tasks(place), sampling=Sampling(max_length=LENGTH), prompts_per_step=5,
        optimization=Optimization(learning_rate=1e-2), steps=1,
    )  # fmt: skip
    config.save(config.dump(run, "small"), tmp_path / config.RECIPE_FILE)
    run_local(run, tmp_path)
    assert cli.main(["export", str(tmp_path), str(tmp_path / "merged")]) == 0
    assert cli.main(["export", str(tmp_path), str(tmp_path / "alone"), "--adapter"]) == 0
    trained, first = run.policy.at(tmp_path / "model").load(), spec.load()
    rows = Tokens.stack([rollout.decisions for rollout in drawn(first, place, samples=1)[1].values()])
    with torch.no_grad():
        wanted, before = (policy.evaluate(rows).logprob_NS for policy in (trained, first))
        assert float((wanted - before).abs().max()) > 1e-3, "it was trained"
        for policy in (CausalLM(model=str(tmp_path / "merged")), run.policy.at(tmp_path / "alone")):
            torch.testing.assert_close(policy.load().evaluate(rows).logprob_NS, wanted, atol=1e-5, rtol=1e-5)
    assert AutoProcessor.from_pretrained(tmp_path / "merged").image_token == "<image>"
    AutoModelForImageTextToText.from_pretrained(tmp_path / "merged")


@pytest.mark.slow
def test_a_run_with_images_resumes_to_the_same_bits(spec, place, tmp_path, single_thread):
    run = small_run(
        policy=spec, tasks=tasks(place), sampling=Sampling(max_length=LENGTH), prompts_per_step=3, max_staleness=1,
        engine=Native(slots=5, precision="float32", cache="recompute"),
    )  # fmt: skip
    trainer = Trainer(run)
    trainer.advance()
    saved = trainer.save(tmp_path, {})
    resumed = Trainer(run, saved)
    for _ in range(2):
        wanted, found = trainer.advance()[0], resumed.advance()[0]
        assert wanted["grad_norm"] == found["grad_norm"] and wanted["reward/mean"] == found["reward/mean"]
    assert checkpoint.newest(tmp_path) == saved


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"engine": VLLM()}, r"which VLLM does not carry: engine='Native\(\)'"),
        ({"workflow": Branching()}, r"which Branching does not carry: workflow='SingleTurn\(\)'"),
        ({"runtime": Ray()}, r"which Ray does not carry: runtime='Local\(\)'"),
        ({"critic": TrunkValue()}, "which TrunkValue does not read"),
        ({"policy": CausalLM(freeze_vision_tower=True)}, "gimbal-tiny has no vision tower"),
    ],
)
def test_what_cannot_carry_images_is_refused(spec, changes, sentence):
    said = [verdict.reason for verdict in compose.verdicts(small_run(**{"policy": spec, **changes}))]
    assert [reason for reason in said if re.search(sentence, reason)]


def test_several_learner_processes_are_refused(spec, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="are not supported with several learner processes: start it without torchrun"):
        compose.check(small_run(policy=spec))


def test_images_that_cannot_be_shown(spec, place, tmp_path):
    policy, path = spec.load(), str(place / "0.png")
    (tmp_path / "broken.png").write_text("no image")
    for columns, sentence in (  # tasks of one's own; those of files are looked at as they are read
        ({"messages": WORDS, "images": [str(tmp_path / "none.png")]}, r"none.png cannot be read"),
        ({"messages": WORDS, "images": [str(tmp_path / "broken.png")]}, r"broken.png cannot be read"),
        ({"images": [path]}, r"has 0 places for images, and its column images has 1: write <image>"),
        ({"messages": WORDS, "images": [3]}, r"it must be a list of paths of image files"),
    ):
        with pytest.raises(ValueError, match=sentence):
            policy.accepts(Task(id="t", prompt="" if "messages" in columns else "What?", columns=columns), 8)
    with pytest.raises(
        ValueError, match="has images, and qwen3 is given none here: models of the type llava take them"
    ):
        CausalLM().load().accepts(Rows(rows=[{"prompt": "What?", "images": [path]}])[0], 8)
