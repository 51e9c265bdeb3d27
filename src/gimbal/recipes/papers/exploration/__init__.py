"""How does a group find new answers?"""
