"""Where does a parent come from when a client asks? A coordinator's zoo, as a source for one query."""

import msgspec

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.coordinator.verifying import checked_query
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.signing.trusted import Trusted
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.loan import Loan

_ALL_FROZEN = 'every parameter of the model is frozen; pass frozen="replace" to have them replaced'


class ZooSource:
    """A coordinator's zoo, as a source of parents for one query."""

    def __init__(
        self, coordinator: Coordinator, query: Query, dry_run: bool, trusted: Trusted | None = None
    ) -> None:
        """`trusted`: the keys that the user has pinned."""
        self._coordinator, self._query, self._dry_run = coordinator, query, dry_run
        self._trusted = trusted or Trusted.of("")

    def loan(self, graph: Graph) -> Loan:
        """What the parent that fits best lends; or a cold start."""
        parameters = {tensor.name for tensor in graph.tensors.values() if not tensor.buffer and tensor.stored}
        if parameters and parameters.issubset(self._query.frozen):
            return LocalLoan(Answer(reason=_ALL_FROZEN, dry_run=self._dry_run))
        return self._ask(graph, self._query, self._dry_run)

    def another(self, graph: Graph, than: Answer) -> Loan | None:
        """What the best of all others lends, if there is one."""
        others = (*self._query.exclude, *(parent.id for parent in than.parents))
        loan = self._ask(graph, msgspec.structs.replace(self._query, exclude=others))
        return None if loan.answer.cold else loan

    def _ask(self, graph: Graph, query: Query, dry_run: bool = False) -> Loan:
        return checked_query(self._coordinator, graph, query, trusted=self._trusted, dry_run=dry_run)
