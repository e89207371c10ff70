"""Data of the user's own: arrays, tables, files, folders and Hugging Face datasets as a `Dataset`."""
