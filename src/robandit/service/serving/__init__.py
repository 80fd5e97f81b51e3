"""The bandits that are being served: what requests do to them, and the queues in which these wait for the disk."""
