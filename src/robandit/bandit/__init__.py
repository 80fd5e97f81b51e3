"""The object that an application holds: features, rewards, a policy, and what still waits for its reward."""

from robandit.bandit.bandit import Bandit
from robandit.bandit.explanation import Explanation
from robandit.bandit.pick import Pick
from robandit.policies.settings import add_settings

add_settings(Bandit)

__all__ = ["Bandit", "Explanation", "Pick"]
