"""Which architectures does an address mean, by a part of the map or by models that have them?"""

import msgspec

from modelkeeper.server.service import Service
from modelkeeper.server.ui.filters import LIKE, MAP, Wanted

ANEW = "The map was drawn anew since this part of it was chosen: choose it again there."
NOT_YET = "The map that a part was chosen of is being drawn: load this page again in a moment."
NONE = "There is no model of these ids that you may see."


def located(service: Service, wanted: Wanted) -> Wanted:
    """The same, with a filter for these architectures; what cannot be found is said, and left out."""
    named: set[str] | None = None
    viewer = wanted.filter.viewer
    if wanted.region is not None:
        region = wanted.region
        corners = region.left, region.bottom, region.right, region.top
        inside = service.maps.within(region.mark, *corners)
        if inside is None:
            wanted = _without(wanted, MAP, ANEW if service.maps.drawn else NOT_YET)
        else:
            named = set(inside)
    if wanted.like:
        records = service.coordinator.known(wanted.like, viewer).values()
        alike = {record.fingerprint for record in records}
        if not alike:
            wanted = _without(wanted, LIKE, NONE)
        else:
            named = alike if named is None else named & alike
    if named is None:
        return wanted
    chosen = msgspec.structs.replace(wanted.filter, fingerprints=tuple(sorted(named)))
    return msgspec.structs.replace(wanted, filter=chosen)


def _without(wanted: Wanted, name: str, problem: str) -> Wanted:
    given = {each: value for each, value in wanted.given.items() if each != name}
    return msgspec.structs.replace(wanted, given=given, problems=(*wanted.problems, problem))
