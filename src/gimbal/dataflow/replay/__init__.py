"""What is kept and trained on again: nothing (Once), rows (Buffer), batches (Recent), successes, what other runs drew (Swarm)."""
