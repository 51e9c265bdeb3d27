"""Terms added to the surrogate: divergences, entropies, likelihoods."""
