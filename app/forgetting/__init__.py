"""Forgetting: what has expired, what nobody asks for, what was corrected."""
