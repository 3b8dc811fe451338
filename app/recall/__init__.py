"""The heart: finds what matters for the next answer."""
