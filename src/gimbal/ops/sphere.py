"""von Mises-Fisher distributions on the unit sphere: density exp(kappa mu.z) / C, ||mu|| = ||z|| = 1."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

TERMS = 200  # of the continued fraction; plenty for kappa up to some hundreds


def mean_resultant(kappa: float, dimensions: int) -> float:
    """A_D(kappa) = I_{D/2}(kappa) / I_{D/2 - 1}(kappa), the length of the mean of z: kappa / D for small kappa, 1 for large."""
    if kappa < 0 or dimensions < 2:
        raise ValueError(f"kappa is {kappa} in {dimensions} dimensions; it is 0 or above, in 2 dimensions or more")
    if kappa == 0:
        return 0.0
    # Gauss's continued fraction of the ratio, from its far end.
    tail = 0.0
    for k in range(TERMS + int(kappa), 0, -1):
        tail = 1 / ((dimensions + 2 * (k - 1)) / kappa + tail)
    return tail


def sphere_kl(mu_ND: Float[Tensor, "N D"], other_ND: Float[Tensor, "N D"], kappa: float) -> Float[Tensor, " N"]:
    """KL(vMF(mu, kappa) || vMF(other, kappa)) = kappa A_D(kappa) (1 - mu.other); 0 for equal directions."""
    return kappa * mean_resultant(kappa, mu_ND.shape[1]) * (1 - (mu_ND * other_ND).sum(-1))
