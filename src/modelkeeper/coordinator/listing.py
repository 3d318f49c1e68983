"""What can a coordinator of a service list besides? Models page by page, and those of some ids."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from modelkeeper.zoo.paging import Page
    from modelkeeper.zoo.records import Filter, Record, Viewer


class ServedListing(Protocol):
    """What a service lists besides, for its pages."""

    def page(
        self,
        wanted: "Filter",
        *,
        order: str,
        limit: int,
        after: str = "",
        before: str = "",
        last: bool = False,
    ) -> "Page":
        """Records `after` or `before` the model of an id, the first or the last ones.

        Raises:
            UnknownModel: There is no such id, or the viewer may not see it.
        """

    def known(self, ids: Collection[str], viewer: "Viewer | None" = None) -> "dict[str, Record]":
        """Records by id, in whatever state; ids of which there is none are left out."""
