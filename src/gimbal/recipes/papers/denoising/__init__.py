"""How do models that draw by denoising (diffusion, flow matching) learn from rewards?"""
