"""The decision service: which of these should I show, and what came of it; durable, each reward counted once."""
