"""The decision service: it chooses actions over HTTP and learns from rewards. Nothing acknowledged is lost, and every
reward counts once."""
