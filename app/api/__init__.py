"""Our HTTP: wire shapes and routes, one resource a file, and what they share."""
