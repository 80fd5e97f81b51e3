"""The name by which a log in Parquet is recognised."""

PARQUET_KEY = b"robandit.log"
"""Key of the file's metadata under which the bandit's name and the monitor's last proof are kept."""
