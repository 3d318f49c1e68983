"""What can a coordinator of a service list besides? Models page by page, those of some ids, and on a map."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from modelkeeper.zoo.catalog.paging import Page
    from modelkeeper.zoo.chart import Chart, Survey
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

    def survey(
        self, before: "Survey | None" = None, *, stop: Callable[[], bool], late: Callable[[], bool]
    ) -> "Survey | None":
        """Draw the map of the zoo, which may take minutes: see `zoo.chart`."""

    def chart(self, survey: "Survey", viewer: "Viewer | None" = None) -> "Chart":
        """What a viewer may see of a map."""
