"""Which decisions may push the policy."""
