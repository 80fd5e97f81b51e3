"""robandit: bandits that can't be bought."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from robandit.bandit import Bandit, Explanation, Pick
from robandit.errors import install as _install
from robandit.features import Features
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Ball, Box, Polytope
from robandit.lab import attacks, checks, environments
from robandit.monitor.certificate import Certificate
from robandit.monitor.joint import joint_certificate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import (
    COBE,
    CWOFUL,
    OFUL,
    SAVE,
    Decision,
    DiscountedLinUCB,
    Exp3P,
    GAdaOFUL,
    Greedy,
    GuaranteeLapsed,
    LinTS,
    MultiLevelWeightedOFUL,
    Policy,
    Quorum,
    RobustBandit,
    RobustLinTS,
    RobustWeightedOFUL,
    StochasticCorral,
    VarianceAwareCWOFUL,
    WeightedOFUL,
)
from robandit.policies.recommend import Recommendation, recommend
from robandit.rewards import Rewards

__version__ = "0.2.0"

__all__ = [
    "COBE",
    "CWOFUL",
    "OFUL",
    "SAVE",
    "Ball",
    "Bandit",
    "Box",
    "Certificate",
    "CorruptionMonitor",
    "Decision",
    "DiscountedLinUCB",
    "Ellipsoid",
    "Exp3P",
    "Explanation",
    "Features",
    "GAdaOFUL",
    "Greedy",
    "GuaranteeLapsed",
    "Intersection",
    "LinTS",
    "MultiLevelWeightedOFUL",
    "Pick",
    "Policy",
    "Polytope",
    "Quorum",
    "Recommendation",
    "Rewards",
    "RobustBandit",
    "RobustLinTS",
    "RobustWeightedOFUL",
    "StochasticCorral",
    "VarianceAwareCWOFUL",
    "WeightedOFUL",
    "attacks",
    "checks",
    "environments",
    "joint_certificate",
    "recommend",
]

# Not in __all__: they need more than NumPy, and are loaded when they are asked for.
_MORE = {
    **dict.fromkeys(("AsyncClient", "Client", "ServiceError"), ("robandit.client", "client", ("httpx", "msgspec"))),
    **dict.fromkeys(
        ("Race", "Simulation", "Tuning", "arena", "simulate", "tune"),
        ("robandit.experiments.notebook", "lab", ("joblib", "matplotlib", "pyarrow", "threadpoolctl", "tqdm")),
    ),
}
"""Where each name is found, the extra that installs what it needs, and that."""

if TYPE_CHECKING:
    from robandit.client.http import AsyncClient as AsyncClient
    from robandit.client.http import Client as Client
    from robandit.client.http import ServiceError as ServiceError
    from robandit.experiments.notebook import Race as Race
    from robandit.experiments.notebook import Simulation as Simulation
    from robandit.experiments.notebook import Tuning as Tuning
    from robandit.experiments.notebook import arena as arena
    from robandit.experiments.notebook import simulate as simulate
    from robandit.experiments.notebook import tune as tune
else:

    def __getattr__(name: str) -> Any:
        if name not in _MORE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, extra, _ = _MORE[name]
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{name} needs {error.name} as well: {_install(extra)}") from None


def __dir__() -> list[str]:
    there = {name for name, (_, _, needed) in _MORE.items() if all(map(find_spec, needed))}
    return sorted({*globals(), *there})
