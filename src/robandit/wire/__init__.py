"""What the service and its clients say to each other."""
