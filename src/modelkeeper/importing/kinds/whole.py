"""Which files hold a whole model: ONNX, Keras, and programs that torch.export wrote?"""

from pathlib import Path

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.contents import EXPORTED, KERAS, ONNX
from modelkeeper.importing.things import Claim, Listing, Source, Terms, Thing


class _File:
    """A kind whose things are single files."""

    name = ""
    content = ""
    extra = ""  # what to install to read them

    def claim(self, folder: Listing) -> Claim | None:
        """Files are found by what they hold."""
        return None

    def holds(self, content: str) -> bool:
        """Is it this kind of file?"""
        return content == self.content

    def open(self, thing: Thing, terms: Terms) -> Source:
        """The model in the file."""
        try:
            return self.read(thing.source, terms)
        except ModuleNotFoundError as error:
            problem = f"the package {error.name} is not installed"
            advice = f'Install it: pip install "modelkeeper[{self.extra}]"'
            raise InvalidModelFile(str(thing.path), problem, advice) from error

    def read(self, path: Path, terms: Terms) -> Source:
        """Read the file; its framework may not be installed."""
        raise NotImplementedError


class Onnx(_File):
    """Models in the ONNX format; their tensors may lie in a second file."""

    name, content, extra = "ONNX", ONNX, "onnx"

    def read(self, path: Path, terms: Terms) -> Source:
        """The graph alone is read; tensors stay where they lie."""
        from modelkeeper.frontends.onnx import OnnxModel

        return Source(model=OnnxModel(path))


class Keras(_File):
    """Files that `model.save("x.keras")` writes."""

    name, content, extra = "Keras", KERAS, "keras"

    def read(self, path: Path, terms: Terms) -> Source:
        """The model, without code that may lie in the file unless that is trusted."""
        from modelkeeper.frontends.keras.files import read_keras

        return Source(model=read_keras(path, trust=terms.trust))


class Exported(_File):
    """Files that torch.export.save writes. They are programs, so they must be trusted."""

    name, content, extra = "torch.export", EXPORTED, "torch"

    def read(self, path: Path, terms: Terms) -> Source:
        """The module that PyTorch makes of it, and the inputs that it was made with."""
        from modelkeeper.frontends.torch.files import read_exported

        if not terms.trust:
            problem = "it is a program: PyTorch makes Python code of what is in it and runs that"
            raise InvalidModelFile(str(path), problem, "Say --trust if you know where it comes from")
        module, inputs = read_exported(path)
        return Source(model=module, inputs=inputs)
