"""From rewards to other rewards, before any baseline."""
