"""Tests of the Keras front end run on the backend that KERAS_BACKEND names, each in a process of its own.

Where nothing is named: PyTorch, if it is installed, or else TensorFlow.
"""

import importlib.util
import os

os.environ.setdefault("KERAS_BACKEND", "torch" if importlib.util.find_spec("torch") else "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
