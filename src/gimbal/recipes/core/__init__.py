"""The recipes that people start from."""
