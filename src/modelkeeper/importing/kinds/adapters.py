"""Which folders hold an adapter (LoRA and the like), which is no model by itself?"""

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.things import Claim, Listing, Source, Terms, Thing

_CONFIG = "adapter_config.json"
_PROBLEM = "it is an adapter of peft, of no use without the model that it belongs to"
_ADVICE = "Import that model, or merge both first: model.merge_and_unload().save_pretrained(...)"


class Adapters:
    """Folders of peft. They are found to be refused, with a reason."""

    name = "adapter"

    def claim(self, folder: Listing) -> Claim | None:
        """The folder itself; what lies in folders below it (checkpoints) is looked at, too."""
        if _CONFIG not in folder.files:
            return None
        name = folder.named or folder.path.absolute().name
        files = (folder.files[_CONFIG],)
        thing = Thing(self.name, folder.path, files, name, problem=_PROBLEM, advice=_ADVICE)
        return Claim((thing,), frozenset(folder.files))

    def holds(self, content: str) -> bool:
        """No single file."""
        return False

    def open(self, thing: Thing, terms: Terms) -> Source:
        """Never."""
        raise InvalidModelFile(str(thing.path), _PROBLEM, _ADVICE)
