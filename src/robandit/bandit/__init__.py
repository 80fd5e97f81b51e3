"""The object that an application holds: features, rewards, a policy, and what still waits for its reward."""

from robandit.bandit.bandit import Bandit
from robandit.bandit.explanation import Explanation
from robandit.bandit.pick import Pick

__all__ = ["Bandit", "Explanation", "Pick"]
