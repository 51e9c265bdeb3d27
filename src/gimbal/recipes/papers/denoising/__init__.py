"""How do denoising models (diffusion, flow matching) learn from rewards?"""
