"""What if the sampler's probabilities are not the trainer's?"""
