"""Which candidate becomes the parent? Policies by name, and the choice among candidates by one of them.

    select(candidates, policy("benefit"), data="Flowers102")
    register(MyPolicy())          one more for this process; packages add theirs by entry points
    POLICIES.names()              benefit, buckets, and what was added

A policy's module is imported when it is asked for: names alone need no NumPy.
"""

from modelkeeper.plugins import POLICIES
from modelkeeper.policy.selection.base import Candidate, Choice, Policy, RunnerUp, Terms
from modelkeeper.policy.selection.benefit import expected_benefit
from modelkeeper.policy.selection.choose import select

__all__ = [
    "POLICIES",
    "Candidate",
    "Choice",
    "Policy",
    "RunnerUp",
    "Terms",
    "expected_benefit",
    "policy",
    "register",
    "select",
]


def policy(name: str) -> Policy:
    """The policy of this name.

    Raises:
        InvalidSetting: There is none, or what was added under this name is no policy.
    """
    part = POLICIES.get(name)
    if not isinstance(part, Policy):
        raise POLICIES.broken(name, f"{type(part).__name__} is no Policy")
    return part


def register(policy: Policy) -> None:
    """Add a policy for this process; one that was added before under its name is replaced.

    Raises:
        InvalidSetting: A built-in policy has this name.
    """
    POLICIES.add(policy.name, policy)
