"""PostgreSQL: engine, reading and writing sessions, the embedded server, the preflight."""
