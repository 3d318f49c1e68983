"""ONNX files: opened, saved anew, with tensors in a second file; and what is no model at all."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, helper, numpy_helper

from modelkeeper.errors import InvalidModelFile, InvalidWeights, ModelKeeperError
from modelkeeper.frontends.onnx import OnnxModel, describe, load, open_onnx, read, save
from modelkeeper.weights import Array
from tests.helpers.onnx_models import computed, convolutions, drawn, model_of, perceptron, tokens

INPUT = {"x": np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(perceptron(6), path)
    return path


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """A model whose tensors lie in a second file."""
    path = tmp_path / "divided" / "model.onnx"
    path.parent.mkdir()
    onnx.save(perceptron(64), path, save_as_external_data=True, location="model.weights", size_threshold=0)
    return path


def weights(model: OnnxModel) -> dict[str, Array]:
    return {name: np.array(array) for name, array in read(model)}


def moved(model: OnnxModel) -> dict[str, Array]:
    return {name: array + 1 for name, array in weights(model).items()}


def test_a_saved_model_is_the_same_model(file: Path, tmp_path: Path) -> None:
    open_onnx(file).save(tmp_path / "copy.onnx")
    np.testing.assert_array_equal(computed(tmp_path / "copy.onnx", INPUT), computed(file, INPUT))
    onnx.checker.check_model(tmp_path / "copy.onnx", full_check=True)


@pytest.mark.parametrize("how", ["load", "save"])
def test_weights_go_into_a_new_file_and_the_old_one_stays(how: str, file: Path, tmp_path: Path) -> None:
    model, before = OnnxModel(file), file.read_bytes()
    changed, target = moved(model), tmp_path / "warmed.onnx"
    if how == "load":
        load(model, changed).save(target)
    else:
        save(model, target, iter(changed.items()))
        assert not any(np.array_equal(array, changed[name]) for name, array in weights(model).items())
    assert file.read_bytes() == before
    found = weights(OnnxModel(target))
    assert found.keys() == changed.keys()
    assert all(np.array_equal(found[name], changed[name]) for name in changed)
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "warmed.onnx"}


@pytest.mark.parametrize("how", ["load", "save"])
def test_tensors_in_a_second_file_stay_apart(how: str, divided: Path, tmp_path: Path) -> None:
    model = OnnxModel(divided)
    before = {path.name: path.read_bytes() for path in divided.parent.iterdir()}
    changed, target = moved(model), tmp_path / "warmed.onnx"
    if how == "load":
        load(model, changed).save(target)
    else:
        save(model, target, changed.items())
    assert {path.name: path.read_bytes() for path in divided.parent.iterdir()} == before
    assert (tmp_path / "warmed.onnx.data").stat().st_size > 0
    found = weights(OnnxModel(target))
    assert all(np.array_equal(found[name], changed[name]) for name in changed)
    onnx.checker.check_model(target)
    assert computed(target, INPUT).shape == (4, 3)


def test_what_is_read_of_a_second_file_is_a_view_of_it(divided: Path) -> None:
    array = dict(read(OnnxModel(divided)))["inner.weight"]
    base: Array | None = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert not array.flags.writeable


def test_a_model_that_is_too_large_for_one_file_gets_two(file: Path, tmp_path: Path) -> None:
    model, target = OnnxModel(file), tmp_path / "parts.onnx"
    save(model, target, moved(model).items(), most=100)
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "parts.onnx", "parts.onnx.data"}
    found = weights(OnnxModel(target))
    assert all(np.array_equal(found[name], array) for name, array in moved(model).items())


def test_saving_is_all_or_nothing(file: Path, tmp_path: Path) -> None:
    model = OnnxModel(file)
    target = tmp_path / "warmed.onnx"
    bad = [*moved(model).items(), ("head.bias", np.zeros(7, np.float32))]
    with pytest.raises(InvalidWeights, match=r"head\.bias"):
        save(model, target, bad)
    with pytest.raises(InvalidModelFile, match="own file"):
        model.save(file)
    with pytest.raises(InvalidModelFile, match="No such file"):
        model.save(tmp_path / "nowhere" / "warmed.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_types_of_numbers_are_kept(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    tensors = {name: array.astype(dtype) for name, array in drawn(0, fc_weight=(4, 3)).items()}
    proto = model_of(
        [helper.make_node("MatMul", ["x", "fc.weight"], ["y"])], {"x": [2, 4]}, ["y"], tensors, dtype=kind
    )
    model = OnnxModel(proto)
    assert describe(model).tensors["fc.weight"].dtype == dtype.name
    load(model, {"fc.weight": np.ones((3, 4), np.float32)})
    [(_, array)] = read(model)
    assert array.dtype == dtype
    assert np.all(array.astype(np.float32) == 1)
    assert proto.graph.initializer[0].data_type == kind


def test_numbers_in_lists_are_read_and_written() -> None:
    proto = perceptron(6)
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        listed = helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, array.reshape(-1).tolist())
        tensor.CopyFrom(listed)
    model = OnnxModel(proto)
    before = weights(model)
    load(model, moved(model))
    assert all(np.array_equal(array, before[name] + 1) for name, array in weights(model).items())


# -- memory -----------------------------------------------------------------------------------------------

MEGABYTE = 1 << 20
_SCRIPT = """
import resource, sys
import numpy as np
from modelkeeper.frontends.onnx import OnnxModel, describe, read, save, load
path, target, room = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = OnnxModel(path)
graph = describe(model)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # what Python and onnx need anyway
resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
total = sum(np.float64(array[0, 0]) for name, array in read(model))
changed = ((name, np.broadcast_to(np.float32(2), array.shape)) for name, array in read(model))
save(model, target, changed)
print(graph.parameters, total, [float(array[-1, -1]) for _, array in read(OnnxModel(target))])
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_DATA"), reason="memory cannot be limited here")
def test_a_model_larger_than_memory_is_read_and_written(tmp_path: Path) -> None:
    """Twelve matrices of 16 MB in a file that takes no room on the disk, with 40 MB of memory to work in."""
    count, size = 12, 2048
    values = ["x", *(f"h{number}" for number in range(count))]
    nodes = [helper.make_node("MatMul", [values[n], f"w{n}"], [values[n + 1]]) for n in range(count)]
    path = tmp_path / "large.onnx"
    proto = model_of(nodes, {"x": [1, size]}, [values[-1]], {})
    for number in range(count):
        tensor = proto.graph.initializer.add(
            name=f"w{number}", data_type=TensorProto.FLOAT, dims=[size, size]
        )
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", "large.bin"),
            ("offset", number * 4 * size**2),
            ("length", 4 * size**2),
        ):
            tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(proto.SerializeToString())
    with (tmp_path / "large.bin").open("wb") as sparse:
        sparse.truncate(count * 4 * size**2)
    command = [sys.executable, "-c", _SCRIPT, str(path), str(tmp_path / "warm.onnx"), str(40 * MEGABYTE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split(maxsplit=2) == [str(count * size**2), "0.0", f"{[2.0] * count}\n"]


# -- strangers' files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"no protobuf", b"\x08\x0a" * 50, bytes(range(256)), b"PK\x03\x04zip"]
)
def test_a_file_that_is_no_model_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModelFile, match="no ONNX file"):
        OnnxModel(path)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.onnx", tmp_path):
        with pytest.raises(InvalidModelFile):
            OnnxModel(path)


def test_a_file_that_was_cut_off(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        try:
            list(read(OnnxModel(file)))
        except InvalidModelFile:
            continue


@pytest.mark.parametrize("make", [perceptron, convolutions, tokens])
def test_bytes_that_were_changed_are_a_model_or_one_clear_error(make: Callable[[int], ModelProto]) -> None:
    whole = make(3).SerializeToString()
    for seed in range(100):
        random = np.random.default_rng(seed)
        changed = bytearray(whole)
        for place in random.integers(0, len(changed), random.integers(1, 5)):
            changed[place] = random.integers(256)
        try:
            proto = ModelProto.FromString(bytes(changed))
        except (DecodeError, ValueError):
            continue
        with contextlib.suppress(ModelKeeperError):
            model = OnnxModel(proto)
            describe(model)
            list(read(model))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"location": "../secret"}, "not in the model's folder"),
        ({"location": "/etc/passwd"}, "not in the model's folder"),
        ({"location": "link"}, "not in the model's folder"),
        ({"location": ""}, "not in the model's folder"),
        ({"location": "missing"}, "is not in"),
        ({"location": "data", "offset": "100"}, "ends before byte"),
        ({"location": "data", "offset": "-8"}, "ends before byte"),
        ({"location": "data", "offset": "far"}, "no number"),
        ({"location": "data", "length": "3"}, "its shape needs"),
    ],
)
def test_a_second_file_must_be_the_models_own(entries: dict[str, str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(1000))
    home = tmp_path / "home"
    home.mkdir()
    (home / "data").write_bytes(bytes(64))
    (home / "link").symlink_to(tmp_path / "secret")
    proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 4]}, ["y"], {})
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[4, 4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    (home / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModelFile, match=problem):
        list(read(OnnxModel(home / "model.onnx")))


def test_a_model_in_memory_has_no_second_file(divided: Path) -> None:
    proto = onnx.load(divided, load_external_data=False)
    with pytest.raises(InvalidModelFile, match=r"OnnxModel\(path\)"):
        list(read(OnnxModel(proto)))


@pytest.mark.parametrize("dims", [[-1, 4], [1 << 40, 1 << 40], [1] * 40])
def test_a_shape_that_cannot_be(dims: list[int]) -> None:
    proto = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 4]}, ["y"], {})
    proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=dims)
    with pytest.raises(InvalidModelFile, match="cannot have the shape"):
        describe(OnnxModel(proto))


def test_a_tensor_with_too_few_numbers() -> None:
    proto = perceptron(6)
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    with pytest.raises(InvalidModelFile, match="its shape needs"):
        list(read(OnnxModel(proto)))
