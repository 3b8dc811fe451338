"""Who may do what: keys, their roles, how often they may ask, and the log of what cannot be undone."""
