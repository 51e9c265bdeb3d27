"""How far may one update go?"""
