"""The ONNX front end passes the suite that every front end runs."""

import numpy as np
import pytest
from onnx import ModelProto

from modelkeeper.frontends.onnx import FRONTEND, OnnxModel
from modelkeeper.testing import FrontendTests
from modelkeeper.weights import Array
from tests.helpers.onnx_models import computed, convolutions, perceptron, tokens

pytestmark = pytest.mark.usefixtures("alone")


class TestPerceptron(FrontendTests):
    frontend = FRONTEND
    input_shape = (2, 5)

    def make(self, width: int, seed: int) -> ModelProto:
        return perceptron(width, seed)

    def outputs(self, model: ModelProto) -> Array:
        return computed(model, {"x": np.random.default_rng(7).normal(size=(2, 5)).astype(np.float32)})


class TestConvolutions(FrontendTests):
    frontend = FRONTEND
    input_shape = (2, 3, 8, 8)

    def make(self, width: int, seed: int) -> OnnxModel:
        return OnnxModel(convolutions(width, seed))

    def outputs(self, model: OnnxModel) -> Array:
        return computed(
            model.proto, {"x": np.random.default_rng(7).normal(size=(2, 3, 8, 8)).astype(np.float32)}
        )


class TestTokens(FrontendTests):
    """Inputs are whole numbers, and a table of embeddings is tied to the head, transposed."""

    frontend = FRONTEND
    input_shape = (2, 4)
    input_dtype = "int64"

    def make(self, width: int, seed: int) -> ModelProto:
        return tokens(width, seed)

    def outputs(self, model: ModelProto) -> Array:
        return computed(model, {"x": np.random.default_rng(7).integers(0, 7, (2, 4))})
