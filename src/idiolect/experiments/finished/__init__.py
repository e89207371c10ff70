"""What a finished run gives: its models as modules, predictions and files, and models for clients that come later."""
