"""Deployment over Flower: the same method where the data are, and private models that stay and survive there."""
