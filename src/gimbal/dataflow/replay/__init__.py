"""What is kept and trained on again: nothing (Once), rollouts (Buffer), single decisions (Transitions), batches (Recent), successes,
what other runs drew (Swarm)."""
