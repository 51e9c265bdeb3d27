"""How does a policy learn from a teacher?"""
