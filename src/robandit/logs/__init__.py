"""Logs of feedback from the past: an audit of any log, and off-policy evaluation of the service's own."""
