"""Which models does the zoo of this process list, and how many? In any order, page by page, or on a map."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from modelkeeper.zoo.catalog.paging import Page
from modelkeeper.zoo.records import Filter, Record, Viewer
from modelkeeper.zoo.zoo import Zoo

if TYPE_CHECKING:
    from modelkeeper.zoo.chart import Chart, Survey


class LocalListing:
    """The part of a coordinator in this process that lists models."""

    zoo: Zoo

    def models(
        self,
        wanted: Filter | None = None,
        *,
        order: str = "-created",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Record]:
        """Records, the newest first unless another order is asked for."""
        wanted, catalog = wanted or Filter(), self.zoo.catalog
        records = catalog.find(wanted, order=order, limit=limit, offset=offset)
        return catalog.names.noted(records, wanted.viewer)

    def page(
        self,
        wanted: Filter,
        *,
        order: str,
        limit: int,
        after: str = "",
        before: str = "",
        last: bool = False,
    ) -> Page:
        """Records from one model on, or back: see `CatalogReader.page`."""
        catalog = self.zoo.catalog
        found = catalog.page(wanted, order=order, limit=limit, after=after, before=before, last=last)
        return Page(catalog.names.noted(found.records, wanted.viewer), found.more)

    def count(self, wanted: Filter | None = None) -> int:
        """How many records there are."""
        return self.zoo.catalog.count(wanted or Filter())

    def known(self, ids: Collection[str], viewer: Viewer | None = None) -> dict[str, Record]:
        """Records by id, in whatever state; ids of which there is none are left out."""
        return self.zoo.catalog.with_ids(ids, viewer)

    def survey(
        self, before: "Survey | None" = None, *, stop: Callable[[], bool], late: Callable[[], bool]
    ) -> "Survey | None":
        """Draw the map of the zoo, which may take minutes: see `zoo.chart`."""
        from modelkeeper.zoo.chart import surveyed  # with NumPy, which who only lists does not need

        return surveyed(self.zoo, before, stop=stop, late=late)

    def chart(self, survey: "Survey", viewer: Viewer | None = None) -> "Chart":
        """What a viewer may see of a map."""
        from modelkeeper.zoo.chart import chart

        return chart(self.zoo, survey, viewer)
