"""What Keras, KerasTuner and AutoKeras warn of among themselves is no warning of ours."""

import pytest

FOREIGN = (
    # Keras' variables, read by NumPy 2.
    r"ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning",
    r"ignore::DeprecationWarning:keras_tuner",
    r"ignore:Even though the `tf.config.experimental_run_functions_eagerly` option is set:UserWarning",
    # AutoKeras gives a model of one input its array, not a list; tuners load weights before optimizers begin.
    r"ignore:The structure of `inputs` doesn't match the expected structure:UserWarning:keras",
    r"ignore:Skipping variable loading for optimizer:UserWarning:keras",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for text in FOREIGN:
                item.add_marker(pytest.mark.filterwarnings(text))
