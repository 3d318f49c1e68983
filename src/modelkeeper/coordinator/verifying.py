"""Is a parent what its signer says? Asked before its weights are used, by whoever is to use them.

    loan = checked_query(coordinator, graph, query, trusted=Trusted.of(""))

A parent whose signature does not hold is left out, with a warning, and the next one is asked for. With
`query.signed` so is one that nobody signed, or by a key that this user has not pinned; who has pinned none
relies on the keys that the zoo trusts.

What is compared: the record as the coordinator shows it, and the manifest that was signed. That the files are
what the record says is compared where they are read: in this process the weights and the program of a parent,
over HTTP both when the whole parent is downloaded (to calibrate, and with `query.signed` always). Weights
that a coordinator gathers from a parent are its own word, since no signature covers them.
"""

import msgspec

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.errors import InvalidSignature, UnknownModel
from modelkeeper.faults import warn
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.signing.trusted import Trusted
from modelkeeper.warmstart.answer import Answer, Parent
from modelkeeper.warmstart.loan import Loan
from modelkeeper.zoo.signatures import signed_as_seen

ATTEMPTS = 4  # to find parents that are what was signed
_NONE_LEFT = "the models that fit best are not what was signed"


def checked_query(
    coordinator: Coordinator,
    graph: Graph,
    query: Query,
    *,
    trusted: Trusted,
    dry_run: bool = False,
    runners_up: bool = False,
) -> Loan:
    """What the best parents lend that are what their signers say; or a cold start.

    Raises:
        InvalidKey: The file of the user's pinned keys cannot be used.
    """
    if query.signed:  # a parent whose file can be compared with what was signed: one, as a whole
        query = msgspec.structs.replace(query, most_parents=1)
    warnings: list[str] = []
    for _ in range(ATTEMPTS):
        loan = coordinator.query(graph, query, dry_run=dry_run, runners_up=runners_up)
        problems = {}
        for parent in loan.answer.parents:
            problem = problem_of(coordinator, parent, query.signed, trusted)
            if problem:
                problems[parent.id] = f"{parent.name or parent.id} was left out: {problem}"
        if not problems:
            return loan
        for text in problems.values():
            warn(text)
        warnings += problems.values()
        query = msgspec.structs.replace(query, exclude=(*query.exclude, *problems))
    return LocalLoan(Answer(reason=_NONE_LEFT, dry_run=dry_run, warnings=tuple(warnings)))


def problem_of(coordinator: Coordinator, parent: Parent, required: bool, trusted: Trusted) -> str:
    """Why a parent is not to be used; "": it may be. One that nobody signed may, unless that is required."""
    if not parent.signer:
        return "nobody signed it" if required else ""
    try:
        record = coordinator.show(parent.id)
        envelope = coordinator.signature(record)
        if envelope is None:
            return "its signature is missing"
        signed = signed_as_seen(envelope, record)
    except (InvalidSignature, UnknownModel) as problem:
        return str(problem)
    if record.id != parent.id or not signed.signer == record.signer == parent.signer:
        return "it is said to be signed by another key than it is"
    pinned = trusted.keys() if required else {}
    if pinned and signed.signer not in pinned:
        return f"key {signed.signer[:16]} signed it, which you have not pinned (modelkeeper key trust --mine)"
    return ""
