"""Transform: carry a parent's weights into a child, exactly where that is possible.

plan = make_plan(parent, child, alignment)      decisions, from graphs alone
for name, array in apply(plan, tensors): ...    numbers, tensor by tensor

side_by_side(parents, child), lay(plan, sources)    the same from several parents: their mean
"""

from modelkeeper.transform.apply import apply
from modelkeeper.transform.plan import Decisions, Entry, Plan
from modelkeeper.transform.planner import make_plan
from modelkeeper.transform.side_by_side import SideBySide, lay, side_by_side

__all__ = ["Decisions", "Entry", "Plan", "SideBySide", "apply", "lay", "make_plan", "side_by_side"]
