"""What one bandit knows, all of which follows from its log: beliefs, records, shadows, and folds."""
