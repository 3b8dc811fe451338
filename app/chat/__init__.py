"""A turn of conversation: recall, compose, ask, record."""
