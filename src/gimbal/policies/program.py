"""The best of combinatorially many actions by a network's value, as a mixed-integer program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

Layer = tuple[np.ndarray, np.ndarray]  # weights [J, I] and biases [J] of a linear layer; J and I are other ones in each


class BinaryProgram:
    """max_x net(x) over x in {0, 1}^I with rows x <= limits, for a network of linear layers with ReLU between them and one output.

    With bounds L <= W x + b <= U of each unit, which follow from x in [0, 1]^I, the ReLU x' = max(0, W x + b) is, where L < 0 < U,

        W x + b = x' - s,   0 <= x' <= U z,   0 <= s <= -L (1 - z),   z in {0, 1}

    and elsewhere linear or 0. The variables are x, and x', s and z of each unit (Fischetti and Jo, 2018). HiGHS solves it to the end.
    """

    def __init__(self, rows_RI: Float[np.ndarray, "R I"], limits_R: Float[np.ndarray, " R"]) -> None:
        self.rows_RI, self.limits_R = rows_RI, limits_R

    def most(self, gain_JI: Float[np.ndarray, "J I"]) -> Float[np.ndarray, " J"]:
        """A bound on gain x, of gains from 0: the least, over the rows, of what the row lets in when things may be taken in part."""
        found_J = gain_JI.sum(1)
        for row_I, limit in zip(self.rows_RI, self.limits_R, strict=True):
            with np.errstate(divide="ignore", invalid="ignore"):
                order_JI = np.argsort(-np.where(row_I > 0, gain_JI / row_I, np.inf), 1, kind="stable")
            cost_JI = row_I[order_JI]
            before_JI = cost_JI.cumsum(1) - cost_JI
            with np.errstate(divide="ignore", invalid="ignore"):
                part_JI = np.where(cost_JI > 0, (limit - before_JI) / cost_JI, 1.0).clip(0, 1)
            found_J = np.minimum(found_J, (np.take_along_axis(gain_JI, order_JI, 1) * part_JI).sum(1))
        return found_J

    def best(self, layers: Sequence[Layer]) -> Float[np.ndarray, " X"]:
        """The x of the largest value."""
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp
        except ModuleNotFoundError as error:
            raise ValueError(
                "a combinatorial action is found by scipy's HiGHS: pip install -e '.[combinatorial]' in the clone"
            ) from error
        count = self.rows_RI.shape[1]
        units = sum(len(bias_J) for _, bias_J in layers[:-1])
        size = count + 3 * units
        low, high = np.zeros(size), np.ones(size)
        whole = np.zeros(size)
        whole[:count] = 1
        equal, sides, below, most = list[np.ndarray](), list[float](), list[np.ndarray](), list[float]()
        inputs, at, least_I, most_I = np.arange(count), count, np.zeros(count), np.ones(count)
        for number, (weight_JI, bias_J) in enumerate(layers[:-1]):
            up_JI, down_JI = weight_JI.clip(min=0), weight_JI.clip(max=0)
            if number:
                least_J, most_J = up_JI @ least_I + down_JI @ most_I, up_JI @ most_I + down_JI @ least_I
            else:
                least_J, most_J = -self.most(-down_JI), self.most(up_JI)
            least_J, most_J = bias_J + least_J, bias_J + most_J
            out = at + 3 * np.arange(len(bias_J))
            for j, place in enumerate(out):
                row = np.zeros(size)
                row[inputs], row[place], row[place + 1] = weight_JI[j], -1, 1
                equal.append(row)
                sides.append(-bias_J[j])
                on, off = max(most_J[j], 0.0), max(-least_J[j], 0.0)
                high[place], high[place + 1] = on, off
                if on and off:
                    whole[place + 2] = 1
                    for part, reach, sign, right in ((place, on, -1, 0.0), (place + 1, off, 1, off)):
                        row = np.zeros(size)
                        row[part], row[place + 2] = 1, sign * reach
                        below.append(row)
                        most.append(right)
            inputs, at = out, at + 3 * len(bias_J)
            least_I, most_I = least_J.clip(min=0), most_J.clip(min=0)
        goal = np.zeros(size)
        goal[inputs] = -layers[-1][0][0]
        feasible = np.pad(self.rows_RI, ((0, 0), (0, size - count)))
        constraints = [LinearConstraint(np.vstack([feasible, *below]), -np.inf, np.concatenate([self.limits_R, most]))]
        if equal:
            constraints.append(LinearConstraint(np.stack(equal), sides, sides))
        found = milp(
            goal, constraints=constraints, bounds=Bounds(low, high), integrality=whole, options={"mip_rel_gap": 0.0}
        )
        if found.x is None:
            raise ValueError(
                f"the program of the best action has no solution ({found.message}): its weights may have gone astray"
            )
        return found.x[:count].round()
