"""How a score follows from the entropy that was spent on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def entropy_law(entropy: Sequence[float], score: Sequence[float]) -> tuple[float, float]:
    """(a, b) of score = b - a exp(entropy) by least squares over the points of one run (arXiv:2505.22617).

    b - a is the score predicted for when no entropy is left. Points of equal entropy give a = 0 and b the mean score.
    """
    if len(entropy) != len(score) or not len(entropy):
        raise ValueError(
            f"entropy_law fits pairs, and got {len(entropy)} entropies for {len(score)} scores; give one each"
        )
    x, y = np.exp(np.asarray(entropy, dtype=np.float64)), np.asarray(score, dtype=np.float64)
    spread = np.square(x - x.mean()).sum()
    slope = float(((x - x.mean()) * y).sum() / spread) if spread > 0 else 0.0
    return -slope, float(y.mean() - slope * x.mean())
