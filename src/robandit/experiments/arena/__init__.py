"""Experiments beyond the paper: every policy under every attack, and our own policy on trial."""
