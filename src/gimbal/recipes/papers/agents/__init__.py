"""How does a policy learn over several turns?"""
