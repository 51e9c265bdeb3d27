"""From advantages to other advantages."""
