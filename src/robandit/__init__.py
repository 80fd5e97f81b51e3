"""robandit: bandits that can't be bought."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from robandit import attacks, checks, environments
from robandit.actions import Ball, Box, Polytope
from robandit.certificate import Certificate
from robandit.ellipsoid import Ellipsoid, Intersection
from robandit.monitor import CorruptionMonitor, joint_certificate
from robandit.policies import (
    COBE,
    CWOFUL,
    OFUL,
    SAVE,
    Decision,
    Exp3P,
    GAdaOFUL,
    Greedy,
    GuaranteeLapsed,
    LinTS,
    MultiLevelWeightedOFUL,
    Policy,
    RobustBandit,
    RobustLinTS,
    RobustWeightedOFUL,
    Sceptic,
    StochasticCorral,
    VarianceAwareCWOFUL,
    WeightedOFUL,
)
from robandit.recommend import Recommendation, recommend

if TYPE_CHECKING:
    from robandit.client import AsyncClient as AsyncClient
    from robandit.client import Client as Client
    from robandit.client import ServiceError as ServiceError

__version__ = "0.1.0"

__all__ = [
    "COBE",
    "CWOFUL",
    "OFUL",
    "SAVE",
    "Ball",
    "Box",
    "Certificate",
    "CorruptionMonitor",
    "Decision",
    "Ellipsoid",
    "Exp3P",
    "GAdaOFUL",
    "Greedy",
    "GuaranteeLapsed",
    "Intersection",
    "LinTS",
    "MultiLevelWeightedOFUL",
    "Policy",
    "Polytope",
    "Recommendation",
    "RobustBandit",
    "RobustLinTS",
    "RobustWeightedOFUL",
    "Sceptic",
    "StochasticCorral",
    "VarianceAwareCWOFUL",
    "WeightedOFUL",
    "attacks",
    "checks",
    "environments",
    "joint_certificate",
    "recommend",
]

_CLIENT = ("AsyncClient", "Client", "ServiceError")  # not in __all__: they need more than NumPy


def __getattr__(name: str) -> Any:
    if name in _CLIENT:
        try:
            return getattr(import_module("robandit.client"), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{name} needs {error.name} as well: pip install 'robandit[client]'") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLIENT})
