"""What is added to the surrogate: divergences, entropies, likelihoods beside it."""
