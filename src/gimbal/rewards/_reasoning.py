"""The half of ReasoningScore that runs in the scoring process: no torch here."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from gimbal.rewards.answers import extract


def make() -> tuple[Callable[..., Any], list[str]]:
    """Called in the worker: the library takes a second to import, while the run starts."""
    with warnings.catch_warnings():
        # Of cellpylib, each time where no bytecode can be kept.
        warnings.filterwarnings("ignore", '"is" with', SyntaxWarning)
        import reasoning_gym

    @cache
    def dataset(name: str, parameters: str) -> Any:
        # Scoring needs the configuration only, never an entry of this instance: seed and size are immaterial.
        return reasoning_gym.create_dataset(name, seed=0, size=1, **json.loads(parameters))

    def score_texts(
        name: str, parameters: str, entry: Mapping[str, Any], texts: Sequence[str], opening: str, closing: str
    ) -> list[float | None]:
        scorer = dataset(name, parameters).score_answer
        return [_score(scorer, entry, extract(text, opening, closing)) for text in texts]

    return score_texts, []


def _score(scorer: Callable[..., Any], entry: Mapping[str, Any], answer: str | None) -> float | None:
    """The library's score of an answer; None where its scorer fails on it."""
    if answer is None:
        return 0.0
    try:
        value = float(scorer(answer, entry))
    except Exception:  # scorers parse what a model wrote, and some raise where it does not parse
        return None
    return value if math.isfinite(value) else None
