"""From rewards, groups and values to advantages."""
