"""The pages on denoising and masked text: their tables name every recipe of these models, and settings that recipes take."""

import re

import blocks
import pytest

pytest.importorskip("diffusers")

from gimbal import config, recipes
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.masked import MaskedLM

NAMES = ("denoising.md", "image-updates.md", "few-steps.md", "streams.md", "masked.md")
PROSE = {name: re.sub(r"^```.*?^```", "", blocks.read(name), flags=re.MULTILINE | re.DOTALL) for name in NAMES}
ROWS = [line.split("|")[1] for name in NAMES[:1] for line in PROSE[name].splitlines() if line.startswith("| `")]
# `key=value` in code, outside of the blocks of commands, with the recipe that takes it.
TYPED = {
    "few-steps.md": "dmd2",
    "streams.md": "gdpo_sr",
    "masked.md": "masked_grpo",
}
RECIPE = {
    "policy.jumps": "any_flow",
    "update.walker": "any_flow",
    "update.real.only": "afd",
    "update.adversarial.real": "dmd2_gan",
    "policy.history": "streams",
    "workflow.past": "streams",
    "sampling.in_place": "reflect_drive",
}


def settings():
    for name, recipe in TYPED.items():
        for code in dict.fromkeys(re.findall(r"`([^`]+)`", PROSE[name])):
            key, _, value = code.partition("=")
            if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", key) and value and not re.search(r"[A-Z]{3}", value):
                yield RECIPE.get(key, recipe), key, value.strip("'")


def test_every_recipe_of_these_models_stands_in_a_table():
    named = {name for row in ROWS for name in re.findall(r"`([a-z_0-9]+)`", row)}
    found = set()
    for question in ("denoising", "distillation"):
        for name in recipes.of(question):
            run = recipes.load(name)
            kinds = [run.policy, *(getattr(kind, "policy", None) for kind in getattr(run, "separate", {}).values())]
            if any(isinstance(kind, Denoiser) for kind in kinds):
                found.add(name)
    assert len(found) >= 27 and found <= named, found - named


def test_every_recipe_of_masked_text_is_named():
    text = blocks.read("masked.md") + blocks.read("streams.md")
    for name in recipes.of("denoising"):
        if isinstance(recipes.load(name).policy, MaskedLM):
            assert name in text, name


@pytest.mark.parametrize(("recipe", "key", "value"), settings())
def test_a_setting_is_taken(recipe, key, value):
    assert recipes.load(recipe, {key: config.Text(value)})
