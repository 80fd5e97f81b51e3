"""What may be asked for: what it may cost, what is filled in where it says nothing, and the vectors that it means."""
