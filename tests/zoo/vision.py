"""A small random LLaVA: CLIP's vision tower, a Llama that reads it, and the processor of both, built and saved here."""

from pathlib import Path

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText
from transformers.models.clip.configuration_clip import CLIPVisionConfig
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llava.configuration_llava import LlavaConfig
from transformers.models.llava.processing_llava import LlavaProcessor
from zoo_families import FAMILIES, tokenizer_of

SIDE, PATCH = 16, 8  # pixels: four patches an image
TEMPLATE = (
    "{{ bos_token }}{%- for message in messages %}{{ message['role'] | upper + ': ' }}"
    "{%- if message['content'] is string %}{{ message['content'] }}{%- else %}{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' %}{{ '<image>' }}{%- else %}{{ part['text'] }}{%- endif %}{%- endfor %}{%- endif %}{{ '\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{%- endif %}"
)


def saved_llava(directory: Path, seed: int = 0) -> Path:
    tokenizer = tokenizer_of(FAMILIES["llama"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE, patch_size=PATCH
    )  # fmt: skip
    text = LlamaConfig(
        vocab_size=400, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=256, eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id, pad_token_id=None,
    )  # fmt: skip
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_id=image_token, vision_feature_layer=-1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config).eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.mul_(4.0)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    size = {"height": SIDE, "width": SIDE}
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE,
    )
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    return directory


def picture(path: Path, seed: int) -> Path:
    """A file of noise in one colour."""
    noise = torch.randint(0, 256, (20, 20, 3), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    noise[..., seed % 3] //= 8
    Image.fromarray(noise.numpy()).save(path)
    return path
