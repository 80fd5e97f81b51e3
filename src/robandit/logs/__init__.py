"""Reading feedback that has already happened."""
