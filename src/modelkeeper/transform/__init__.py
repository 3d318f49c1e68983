"""Transform: carry a parent's weights into a child, exactly where that is possible.

plan = make_plan(parent, child, alignment)      decisions, from graphs alone
for name, array in apply(plan, tensors): ...    numbers, tensor by tensor
"""

from modelkeeper.transform.apply import apply
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.planner import make_plan

__all__ = ["Entry", "Plan", "apply", "make_plan"]
