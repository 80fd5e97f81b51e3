"""What faces the network: connections, keys, routes and pages."""
