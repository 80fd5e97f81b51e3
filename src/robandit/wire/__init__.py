"""The types that the service and its clients exchange, and the events of a log."""
