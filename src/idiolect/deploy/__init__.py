"""Deployment over Flower: sites train a method where their data are, and keep their private models on their disks."""
