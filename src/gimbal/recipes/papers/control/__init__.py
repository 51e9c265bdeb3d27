"""How do policies for control tasks learn?"""
