"""How does a group find answers that it has not found yet?"""
