"""ONNX models: `OnnxModel(path)` is a model like any other.

from modelkeeper.frontends.onnx import OnnxModel

model, answer = client.query_for_model(OnnxModel("model.onnx"), meta)
model.save("warmed.onnx")
"""

from modelkeeper.frontends.onnx.describe import describe
from modelkeeper.frontends.onnx.frontend import FRONTEND
from modelkeeper.frontends.onnx.model_file import OnnxModel, open_onnx
from modelkeeper.frontends.onnx.read_load import load, read, save

__all__ = ["FRONTEND", "OnnxModel", "describe", "load", "open_onnx", "read", "save"]
