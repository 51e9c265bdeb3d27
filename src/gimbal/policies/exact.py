"""Whether a transformers model does what we count on, asked of the model itself: a few tokens, and its own forward pass as the judge.

Trainer and sampler share much of what could go wrong with an architecture: a mask that its layers do not mind, a scale after the output
layer. Both would then agree, and be wrong together, so that no gap between them shows it. What differs is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.policies.layout import SLIDING, UNLIMITED, Sharing, apart, laid, window_of

PROMPT, DRAWN = 7, 6  # tokens that are tried
WINDOW = 3  # the window of sliding layers while they are, so that it matters
GAPS = {torch.float64: 1e-4, torch.float32: 1e-4}  # between logits, in units of their spread, that rounding may explain
COARSE = 0.1  # of all other precisions
IMPOSSIBLE = -1e3  # a logit of no model
LAYERS = frozenset({"full_attention", SLIDING})  # kinds of layers whose state is keys and values of each position
AFTER_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap")  # what configs call it


def tried(model: Any) -> Int[Tensor, "two L"]:
    """Two rows of one prompt."""
    config = model.config
    marks = {value for name, value in vars(config).items() if name.endswith("_token_id") and isinstance(value, int)}
    size = model.get_input_embeddings().weight.shape[0]
    plain = [token for token in range(size // 2, size) if token not in marks] or list(range(size))
    ids = [plain[(5 * n + n * n) % len(plain)] for n in range(PROMPT + 2 * DRAWN)]
    rows = [ids[:PROMPT] + ids[PROMPT:-DRAWN], ids[:PROMPT] + ids[-DRAWN:]]
    return torch.tensor(rows, device=model.device)


def far(found: Float[Tensor, "*rows V"], wanted: Float[Tensor, "*rows V"]) -> bool:
    """Whether the logits of most positions are further apart than rounding explains. A few may be: where experts are chosen, rounding
    decides between near equals."""
    # Tokens that nobody may draw would hide all else in the spread.
    possible = (wanted > IMPOSSIBLE).flatten(0, -2).all(0)
    found, wanted = found[..., possible], wanted[..., possible]
    gap = (found.double() - wanted.double()).abs().mean(-1) / wanted.double().std(-1).clamp(min=1e-9)
    return not float(gap.median()) <= GAPS.get(wanted.dtype, COARSE)


@contextmanager
def narrow(model: Any) -> Iterator[None]:
    """Within it the windows of sliding layers are shorter than what is tried."""
    config = model.config.get_text_config()
    window = vars(config).get("sliding_window")
    if window is not None:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window is not None:
            config.sliding_window = window


def name_of(model: Any) -> str:
    return model.config.get_text_config().model_type


def kind(model: Any) -> str:
    """What decides about all of this: the architecture, whatever its weights, and the kind of device."""
    own = f"{type(model).__name__} {model.config._attn_implementation} {model.config.to_json_string()}"
    return f"{model.device.type} {model.dtype} {own}"


_sharing: dict[str, Sharing | None] = {}


def shares(model: Any) -> Sharing | None:
    """How rows may share their prefixes; None: not at all. ValueError where its log-probabilities cannot be computed."""
    if (known := kind(model)) not in _sharing:
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            with narrow(model):
                behind_masks = _shares(model)
            _sharing[known] = Sharing(deepest=_deepest(model)) if behind_masks else None
    return _sharing[known]


def _deepest(model: Any) -> int:
    """The longest row that attention in pieces is exact for: one that no layer's window cuts. 0 where the model does not take it."""
    if model.config.get_text_config()._attn_implementation != "sdpa":
        return 0
    window = window_of(model)
    deepest = UNLIMITED if window is None else window
    return deepest if deepest >= PROMPT + DRAWN and _as_alone(model, Sharing(deepest=deepest)) else 0


def _as_alone(model: Any, sharing: Sharing) -> bool:
    """Whether a row that shares its prefix gets the same logits as alone."""
    ids = tried(model)
    first_N, length_N = (torch.full((2,), length, device=ids.device) for length in (PROMPT, PROMPT + DRAWN))
    where = (ids, first_N, length_N)
    layout, plain = laid(*where, (), sharing), apart(*where)
    assert layout.end_RL is not None, "they have one prompt"
    wanted = model(input_ids=ids, use_cache=False).logits
    behind, _ = attempted(lambda: model(**layout.inputs(model), use_cache=False).logits[layout.row_K, layout.column_K])
    # The second row alone: the first stands next to the prompt in any case.
    return behind is not None and not far(behind[DRAWN:], wanted[plain.row_K, plain.column_K][DRAWN:])


def _shares(model: Any) -> bool:
    name, config = name_of(model), vars(model.config.get_text_config())
    if changed := next((key for key in AFTER_HEAD if config.get(key) not in (None, 1)), ""):
        raise ValueError(
            f"{name} changes its logits after the output layer ({changed}={config[changed]}), and the trainer does not: it would "
            "train on other log-probabilities than those sampled from; policy.model takes a model without, such as Gemma 3 for Gemma 2"
        )
    ids = tried(model)
    wanted = model(input_ids=ids, use_cache=False).logits
    if far(model(input_ids=ids[:, :PROMPT], use_cache=False).logits, wanted[:, :PROMPT]):
        raise ValueError(
            f"{name} looks ahead: its output for a token depends on later tokens, so it cannot be sampled token by token; "
            "policy.model must be a causal language model"
        )
    head = model.get_output_embeddings()
    if head is None or model.base_model is model:
        raise ValueError(
            f"{name} has no output layer apart from its body, which the trainer takes log-probabilities with; policy.model takes "
            "a model of an architecture like Llama's, Qwen's, Gemma 3's or GPT-2's"
        )
    if far(head(model.base_model(input_ids=ids, use_cache=False).last_hidden_state), wanted):
        raise ValueError(
            f"{name} does more after its body than its output layer, and the trainer does not: it would train on other "
            "log-probabilities than those sampled from; policy.model takes a model of an architecture like Llama's or Qwen's"
        )
    return _as_alone(model, Sharing())


def attempted(attempt: Callable[[], Tensor]) -> tuple[Tensor | None, str]:
    """The logits, or None and why a model does not take what it is given: a mask or a cache of ours."""
    try:
        return attempt(), ""
    except (RuntimeError, TypeError, AttributeError, LookupError, ValueError, AssertionError) as error:
        return None, " ".join(f"{type(error).__name__}: {error}".split())[:120]  # its modules say so in any of these
