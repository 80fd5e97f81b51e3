"""Decisions of real people, read from packages that others publish."""

from robandit.experiments.real.catalogue import DATA, DataSet, load
from robandit.experiments.real.decisions import Decisions
from robandit.experiments.real.packages import MissingData, Package

__all__ = ["DATA", "DataSet", "Decisions", "MissingData", "Package", "load"]
