"""Every kind of things that can be imported, in the order in which they are asked about a folder."""

from modelkeeper.importing.kinds.adapters import Adapters
from modelkeeper.importing.kinds.huggingface import HuggingFace
from modelkeeper.importing.kinds.kept import Kept
from modelkeeper.importing.kinds.mlflow import MLflow
from modelkeeper.importing.kinds.weights import Weights
from modelkeeper.importing.kinds.whole import Exported, Keras, Onnx
from modelkeeper.importing.things import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (Kept(), MLflow(), Adapters(), HuggingFace(), Weights(), Onnx(), Keras(), Exported())
}
