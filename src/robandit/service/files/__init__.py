"""Stores and logs as files: checked, copied and exported."""
