"""What a critic descends."""
