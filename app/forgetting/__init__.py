"""What is no longer true, no longer wanted or never asked for."""
