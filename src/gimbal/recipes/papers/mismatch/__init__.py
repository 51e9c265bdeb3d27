"""What if sampler and trainer compute different probabilities?"""
