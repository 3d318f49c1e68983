"""How long does it take to describe a Keras model, in symbolic calls of the same model? As JSON

    KERAS_BACKEND=jax python -m benchmarks.keras_describe [--models ResNet50 ...]

Two calls are the measure. `shapes`: the model on a symbolic tensor, where Keras asks each layer for the
shape of its output and runs none of its code. `call`: the model's own code on stand-ins of the backend, as
Keras traces a layer that does not say its shapes. Describing runs that code as well, operation by
operation, and lowers it. Each is the best of several runs, in seconds of the processor.
"""

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import keras
from keras.src import backend

from modelkeeper.frontends.keras.describe import study

MODELS = ("ResNet50", "MobileNetV2", "DenseNet121", "EfficientNetB0", "ConvNeXtTiny")


def best(function: Callable[[], Any], repeats: int = 5) -> float:
    """The shortest of several runs, in seconds of the processor."""
    times = []
    for _ in range(repeats):
        gc.collect()
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


def measure(name: str) -> dict[str, Any]:
    """One row: seconds, and how many symbolic calls that is."""
    model = getattr(keras.applications, name)(weights=None)
    example = keras.KerasTensor((1, *model.inputs[0].shape[1:]))
    described = best(lambda: study(model))
    shapes = best(lambda: model(example))
    call = best(lambda: backend.compute_output_spec(model.call, example))
    return {
        "name": name,
        "describe": round(described, 4),
        "shapes": round(shapes, 4),
        "call": round(call, 4),
        "times_shapes": round(described / shapes, 2),
        "times_call": round(described / call, 2),
    }


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, help="names of keras.applications")
    options = parser.parse_args()
    rows = [measure(name) for name in options.models]
    machine = f"{platform.machine()}, Keras {keras.__version__} on {keras.backend.backend()}"
    print(json.dumps({"machine": machine, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
