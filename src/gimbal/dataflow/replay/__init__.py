"""What is kept and trained on again: Once keeps nothing, Buffer the newest rows, Recent the last batches, Successes what went well."""
