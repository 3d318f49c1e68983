"""What are the numbers of a tensor, whichever backend it is of?"""

from typing import Any

import keras
import ml_dtypes
import numpy as np

from modelkeeper.frontends.keras.variables import is_variable
from modelkeeper.weights import Array

assert ml_dtypes  # importing it teaches NumPy bfloat16 and the like


def to_numpy(thing: Any) -> Array:
    """The numbers of a variable, of a tensor of the backend, or of anything that NumPy takes.

    The array may share memory with it.
    """
    if isinstance(thing, (bool, int, float, list, tuple, np.ndarray, np.generic)):
        return np.asarray(thing)
    tensor = thing.value if is_variable(thing) else thing
    if hasattr(tensor, "detach"):  # PyTorch
        tensor = tensor.detach().cpu()
        if "bfloat16" in str(tensor.dtype):  # NumPy has none of its own
            return np.asarray(tensor.float().numpy()).astype("bfloat16")
    if hasattr(tensor, "numpy"):  # PyTorch, TensorFlow
        return np.asarray(tensor.numpy())
    return np.asarray(keras.ops.convert_to_numpy(tensor))
