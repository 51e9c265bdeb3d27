"""How does a policy learn that acts instead of writing?"""
