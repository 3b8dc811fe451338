"""Temporal Memory: persistent, time-aware conversation memory for LLM chat bots."""
