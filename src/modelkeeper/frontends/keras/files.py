"""Which model lies in a file that Keras wrote?"""

from pathlib import Path
from typing import Any

import keras

from modelkeeper.errors import InvalidModelFile


def read_keras(path: Path, *, trust: bool = False) -> Any:
    """The model in a .keras file.

    Args:
        path: The file.
        trust: May code that lies in the file (lambdas) be run?

    Raises:
        InvalidModelFile: It cannot be read, or is made of classes that are not registered here.
    """
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=not trust)
    except Exception as problem:  # a damaged file may raise anything
        text = " ".join(str(problem).split())[:300]
        advice = "Classes of your own need @keras.saving.register_keras_serializable() and to be imported"
        raise InvalidModelFile(str(path), f"Keras says: {text}", advice) from problem
