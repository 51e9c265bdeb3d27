"""How does a policy learn from a teacher, or to sample in few steps?"""
