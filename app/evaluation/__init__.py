"""Judgement: what a turn is worth, and how long it is kept."""
