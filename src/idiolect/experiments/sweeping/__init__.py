"""What a sweep tries, and how its trials are told."""
