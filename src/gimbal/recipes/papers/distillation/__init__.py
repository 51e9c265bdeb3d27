"""How does a denoising model learn from another one, or to sample in few steps?"""
