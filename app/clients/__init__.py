"""Calls to other machines, and to the model in this process that stands in for one."""
