"""Names of files become names of models, or it is said what does not fit."""

import numpy as np
import pytest

from modelkeeper.errors import InvalidModelFile
from modelkeeper.importing.fitting import fit

NAMES = {name: name for name in ("0.weight", "0.bias", "1.weight")}
TENSORS = {name: np.zeros(2) for name in NAMES}


@pytest.mark.parametrize("prefix", ["", "module.", "model.net.", "_orig_mod.", "module._orig_mod."])
def test_what_stands_before_all_names_is_left_out(prefix: str) -> None:
    fitted = fit({prefix + name: value for name, value in TENSORS.items()}, NAMES, "f")
    assert fitted.tensors.keys() == NAMES.keys()
    assert fitted.beside == ()


def test_a_model_may_have_a_prefix_that_the_file_lacks() -> None:
    assert set(fit(TENSORS, {f"net.{name}": f"net.{name}" for name in NAMES}, "f").tensors) == {
        f"net.{name}" for name in NAMES
    }


def test_what_lies_beside_a_prefix_is_not_of_the_model() -> None:
    given = {f"net.{name}": value for name, value in TENSORS.items()} | {"loss.weight": np.zeros(1)}
    assert fit(given, NAMES, "f").beside == ("loss.weight",)


def test_a_deeper_file_a_shallower_one_and_other_shapes_do_not_fit() -> None:
    shapes = dict.fromkeys(NAMES, (2,))
    with pytest.raises(InvalidModelFile, match=r"1 of its tensors are not in the model: 2\.weight"):
        fit({**TENSORS, "2.weight": np.zeros(2)}, NAMES, "f", shapes)
    with pytest.raises(InvalidModelFile, match=r"2 tensors of the model are not in it: 0\.bias, 1\.weight"):
        fit({"0.weight": np.zeros(2)}, NAMES, "f", shapes)
    with pytest.raises(InvalidModelFile, match=r"0\.bias \(3,\) instead of \(2,\)"):
        fit({**TENSORS, "0.bias": np.zeros(3)}, NAMES, "f", shapes)


def test_counters_of_batch_norms_may_be_missing() -> None:
    names = {**NAMES, "bn.num_batches_tracked": "bn.num_batches_tracked"}
    assert fit(TENSORS, names, "f").tensors.keys() == NAMES.keys()
