"""Weights for the gap between sampler and trainer."""
