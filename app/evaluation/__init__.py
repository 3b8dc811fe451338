"""What a finished turn is worth, and for how long it is kept."""
