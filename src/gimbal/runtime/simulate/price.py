"""What old data costs a run: a part of the learning rate, and more steps. Measured on a 1 M model (claims/README.md)."""

from __future__ import annotations

import math
from typing import NamedTuple


class Price(NamedTuple):
    """Beside fresh data: ``rate``, what the closed loop made of the learning rate; ``steps``, to a training pass rate of 0.75."""

    rate: float
    steps: float


# By the age of data. gimbal-tiny on two subjects, `gimbal train stable`; a test recomputes them from claims/grid.json. At ages 1 and 4
# it took no more steps than on fresh data (a twentieth to a tenth fewer, which is within the noise).
MEASURED = {0: Price(1.0, 1.0), 1: Price(0.9, 1.0), 4: Price(0.8, 1.0), 16: Price(0.3, 1.2)}


def price(age: float) -> Price:
    """Between the ages that were measured linear in log(1 + age); beyond the last of them what it was there."""
    ages = list(MEASURED)
    age = min(max(age, 0.0), float(ages[-1]))
    above = next(i for i in range(1, len(ages)) if age <= ages[i])
    low, high = ages[above - 1], ages[above]
    share = math.log((1 + age) / (1 + low)) / math.log((1 + high) / (1 + low))
    return Price(*(a + share * (b - a) for a, b in zip(MEASURED[low], MEASURED[high], strict=True)))
