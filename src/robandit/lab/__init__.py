"""The proving ground: environments, attacks, the protocol, and runs of many trials."""
