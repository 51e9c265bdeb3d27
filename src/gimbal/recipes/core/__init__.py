"""Standard methods to start from."""
