"""The policies, one file each."""

from robandit.policies.base import Policy
from robandit.policies.cobe import COBE
from robandit.policies.cw_oful import CWOFUL
from robandit.policies.decision import Decision
from robandit.policies.discounted_lin_ucb import DiscountedLinUCB
from robandit.policies.exp3p import Exp3P
from robandit.policies.gadaoful import GAdaOFUL
from robandit.policies.greedy import Greedy
from robandit.policies.lin_ts import LinTS
from robandit.policies.multi_level_weighted_oful import GuaranteeLapsed, MultiLevelWeightedOFUL
from robandit.policies.oful import OFUL
from robandit.policies.quorum import Quorum
from robandit.policies.robust_bandit import RobustBandit
from robandit.policies.robust_lin_ts import RobustLinTS
from robandit.policies.robust_weighted_oful import RobustWeightedOFUL
from robandit.policies.save import SAVE
from robandit.policies.settings import add_settings
from robandit.policies.stochastic_corral import StochasticCorral
from robandit.policies.variance_aware_cw_oful import VarianceAwareCWOFUL
from robandit.policies.weighted_oful import WeightedOFUL

POLICIES: dict[str, type[Policy]] = {
    "oful": OFUL,
    "weighted-oful": WeightedOFUL,
    "greedy": Greedy,
    "robust-weighted-oful": RobustWeightedOFUL,
    "multi-level-weighted-oful": MultiLevelWeightedOFUL,
    "cw-oful": CWOFUL,
    "variance-aware-cw-oful": VarianceAwareCWOFUL,
    "robust-bandit": RobustBandit,
    "stochastic-corral": StochasticCorral,
    "exp3p": Exp3P,
    "cobe": COBE,
    "save": SAVE,
    "lin-ts": LinTS,
    "robust-lin-ts": RobustLinTS,
    "gadaoful": GAdaOFUL,
    "discounted-lin-ucb": DiscountedLinUCB,
    "quorum": Quorum,
}
"""Every policy by its name."""

add_settings(Policy)
for _kind in POLICIES.values():
    add_settings(_kind)

__all__ = [
    "COBE",
    "CWOFUL",
    "OFUL",
    "POLICIES",
    "SAVE",
    "Decision",
    "DiscountedLinUCB",
    "Exp3P",
    "GAdaOFUL",
    "Greedy",
    "GuaranteeLapsed",
    "LinTS",
    "MultiLevelWeightedOFUL",
    "Policy",
    "Quorum",
    "RobustBandit",
    "RobustLinTS",
    "RobustWeightedOFUL",
    "StochasticCorral",
    "VarianceAwareCWOFUL",
    "WeightedOFUL",
]
