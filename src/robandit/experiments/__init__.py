"""The paper's experiments, the arena, and the tuning that they share."""
