"""Where can one file be had, or put, past the coordinator? At a URL that is signed with the store's keys.

    urls = SignedUrls("s3://bucket/zoo", store, "https://store.example.org")
    urls.sign("GET", path)        for some minutes, and for just this file; "": the store cannot sign

The name of the host is part of what is signed. A coordinator often reaches its store by a name that clients
do not know (http://s3:8333): then the setting `blobs_public` says what they call it, and URLs are signed for
that name alone. Nothing is sent there from here; what stands there hands requests on with the host they name.
"""

from datetime import timedelta
from typing import Literal

import obstore
from obstore.exceptions import BaseError as StoreError
from obstore.store import AzureStore, GCSStore, S3Store

from modelkeeper.errors import InvalidSetting
from modelkeeper.logs import logger
from modelkeeper.zoo.files.stores import Store, open_at

SIGNED = timedelta(minutes=15)  # for which a URL is good; a transfer that has begun may take longer
_log = logger()


class SignedUrls:
    """What a store's keys can sign. Safe to use from several threads."""

    def __init__(self, url: str, store: Store, public: str = "") -> None:
        """`public`: the endpoint of the store as clients reach it; "": as it is reached from here.

        Raises:
            InvalidSetting: The store is none that has another endpoint.
        """
        self._url = url
        self._signing = store if isinstance(store, S3Store | GCSStore | AzureStore) else None
        if public:
            if not isinstance(store, S3Store):
                advice = "leave it out: the weights are in no store that speaks S3"
                raise InvalidSetting("blobs_public", repr(public), advice)
            signing = open_at(url, public)
            assert isinstance(signing, S3Store)
            self._signing = signing

    def sign(self, method: Literal["GET", "PUT"], path: str) -> str:
        """A URL for just one file, which needs no other right; "": the store cannot sign."""
        if self._signing is None:
            return ""
        try:
            return obstore.sign(self._signing, method, path, SIGNED)
        except (StoreError, OSError, ValueError) as problem:  # rights that can read cannot always sign
            _log.warning("signing for %s failed: %s", self._url, str(problem).partition("\n")[0])
            return ""
