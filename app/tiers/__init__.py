"""The hot window: what the conversation that is going on holds."""
