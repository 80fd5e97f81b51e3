"""The paper, rerun: one file for each experiment."""
