"""How is what is asked of a coordinator written in an address, and what is said of a model that waits?"""

from pathlib import Path
from typing import Any

from modelkeeper.errors import CoordinatorUnreachable, ModelKeeperError, NotAllowed
from modelkeeper.zoo.records import Filter


def filters(wanted: Filter) -> dict[str, Any]:
    """Which models are wanted, as parameters."""
    given = {"task": wanted.task, "data": wanted.data, "text": wanted.text}
    params: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for each in wanted.restrictions:
        params |= {"owner": list(each.owners), "project": list(each.projects), "licence": list(each.licences)}
        params |= {"signed": True} if each.signed else {}
    params |= {name: bound for name, bound in wanted.ranges.items() if bound is not None}
    return params | {"tag": list(wanted.tags), "state": list(wanted.states)}


def with_advice(problem: ModelKeeperError, url: str, folder: Path) -> ModelKeeperError:
    """The same error, which also says where the model is; one that gives no advice is the coordinator's."""
    sender = "`modelkeeper sync`"
    if isinstance(problem, NotAllowed):  # by this token it never will
        sender = f"with a token that may register, `modelkeeper sync --to {url}`"
    more = f"The model waits in {folder}; {sender} sends it."
    advice = getattr(problem, "advice", None)
    if not isinstance(advice, str) or isinstance(problem, CoordinatorUnreachable):
        text = getattr(problem, "problem", None) or str(problem)
        return CoordinatorUnreachable(url, str(text), more)
    fields = [f"{field} {more}" if field is advice else field for field in problem.args]
    return type(problem)(*fields)
