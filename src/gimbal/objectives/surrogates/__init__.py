"""What an update descends: surrogates of the policy gradient, and likelihoods in its place."""
