"""One figure for what a start is worth, at home and elsewhere."""

from __future__ import annotations


def gain(after: float, before: float) -> float:
    """The relative gain over a base above 0."""
    if before <= 0:
        raise ValueError(f"a relative gain is measured from a score above 0, and the base has {before}")
    return (after - before) / before


def generalisation_factor(at_home: float, elsewhere: float, beta: float = 2.0) -> float:
    """(1 + beta^2) a b / (beta^2 a + b) of the gains a on the training distribution and b on others (Metis-SPECS, arXiv:2510.25801).

    - ``beta`` = 1: the harmonic mean. Above 1 what is gained elsewhere weighs more; published: 2.
    - equal gains: that gain.
    - a gain of 0 or below, where the formula misleads: the smaller of the two (ours).
    """
    if at_home <= 0 or elsewhere <= 0:
        return min(at_home, elsewhere)
    return (1 + beta**2) * at_home * elsewhere / (beta**2 * at_home + elsewhere)
