"""Where are the models that are being sent? Where every process that serves the zoo can go on with them.

    uploads = open_uploads(coordinator)
    uploads.begin(owner, request, check)        announce, and reserve room; how many bytes are there already?
    uploads.write(id, attempt, offset, data)    the next bytes
    with uploads.staged(id) as staged: ...      all of it, ready to be taken into the zoo
    uploads.forget(id)

Who announces more than they may send at once takes the place of what they began and have not gone on with: a
client that has died locks nobody out.
"""

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.server.upload_store.base import MOST_OPEN, Announced, Check, Reserved, Sending, UploadStore
from modelkeeper.server.upload_store.folder import FolderUploads
from modelkeeper.server.upload_store.objects import ObjectUploads
from modelkeeper.zoo.replicas.parts import IDLE

__all__ = [
    "IDLE",
    "MOST_OPEN",
    "Announced",
    "Check",
    "FolderUploads",
    "ObjectUploads",
    "Reserved",
    "Sending",
    "UploadStore",
    "open_uploads",
]


def open_uploads(coordinator: ServedCoordinator) -> UploadStore:
    """The uploads to a coordinator: in the staging area of its store."""
    folder, parts = coordinator.upload_folder(), coordinator.upload_parts()
    return FolderUploads(folder) if parts is None else ObjectUploads(parts, folder)
