"""The dozen recipes that people start from."""
