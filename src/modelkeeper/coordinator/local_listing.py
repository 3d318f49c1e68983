"""Which models does the zoo of this process list, and how many? In any order, whole or page by page."""

from collections.abc import Collection

from modelkeeper.zoo.paging import Page
from modelkeeper.zoo.records import Filter, Record, Viewer
from modelkeeper.zoo.zoo import Zoo


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
