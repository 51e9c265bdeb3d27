"""Recipes of published works, by the question that each answers."""
