"""Simulations, tuning and the arena as functions for notebooks: `robandit.simulate`, `tune` and `arena`."""

from robandit.experiments.notebook.racing import Race, arena
from robandit.experiments.notebook.result import Simulation
from robandit.experiments.notebook.simulation import simulate
from robandit.experiments.notebook.tuning import Tuning, tune

__all__ = ["Race", "Simulation", "Tuning", "arena", "simulate", "tune"]
