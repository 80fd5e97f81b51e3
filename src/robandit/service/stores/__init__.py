"""Where the service keeps its log."""
