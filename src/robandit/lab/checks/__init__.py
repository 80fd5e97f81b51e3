"""Checks that every policy, environment and attack must pass, ours or a user's. A failed check raises AssertionError.

>>> import robandit
>>> check_policy(lambda **settings: robandit.Greedy(noise_range=0.5, **settings))
"""

from robandit.lab.checks.attacks import ATTACK_CHECKS, MakeAttack, check_attack
from robandit.lab.checks.environments import ENVIRONMENT_CHECKS, MakeEnvironment, check_environment
from robandit.lab.checks.policies import POLICY_CHECKS, MakePolicy, check_policy, same_state

__all__ = [
    "ATTACK_CHECKS",
    "ENVIRONMENT_CHECKS",
    "POLICY_CHECKS",
    "MakeAttack",
    "MakeEnvironment",
    "MakePolicy",
    "check_attack",
    "check_environment",
    "check_policy",
    "same_state",
]
