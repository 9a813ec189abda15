from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from onnx_models import model, node
from plain_tvm import build
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import FRONTENDS, load


def relu_module():
    return build(lambda _bb, x: relax.op.nn.relu(x), x=(2, 3))


def test_every_row_says_what_it_reads():
    assert all(row.name == name and row.reads for name, row in FRONTENDS.items())


def test_a_relax_module_is_taken_as_it_is():
    mod = relu_module()
    loaded, params = load(mod)
    assert loaded.same_as(mod) and params == {}


def test_a_relax_module_may_come_with_params_of_any_array_type():
    given = {
        "a": np.ones(2, "float32"),
        "b": tvm.runtime.tensor(np.zeros(3, "float32")),
        "c": [1.0],
    }
    _, params = load((relu_module(), given))
    assert {name: value.tolist() for name, value in params.items()} == {
        "a": [1, 1],
        "b": [0, 0, 0],
        "c": [1],
    }


def test_params_that_are_no_arrays_are_named():
    with pytest.raises(FrontendError, match="Parameter 'w'"):
        load((relu_module(), {"w": object()}))


def test_a_lowered_module_is_refused():
    mod = relax.transform.LegalizeOps()(relu_module())
    del mod["main"]
    with pytest.raises(Exception, match="no function 'main'"):
        load(mod)


def test_onnx_is_read_from_a_path_a_string_bytes_and_a_proto(tmp_path):
    source = model([node("Relu", ["x"])], {"x": [1, 2]})
    path = tmp_path / "model.onnx"
    path.write_bytes(source.SerializeToString())
    modules = [load(s)[0] for s in (path, str(path), path.read_bytes(), source)]
    for mod in modules[1:]:
        tvm.ir.assert_structural_equal(modules[0], mod)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.onnx", None, "No such model file"),
        ("folder.onnx", "folder", "is a folder"),
        ("model.xyz", b"x", r"known format. Accepted are:\n.*relax"),
        ("damaged.onnx", b"no protobuf", "cannot be read as an ONNX model"),
        ("empty.onnx", b"", "a graph without outputs"),
        ("damaged.tflite", b"no flatbuffer", "TFL3 is missing"),
    ],
)
def test_files_that_are_no_model_are_refused(tmp_path: Path, name, content, message):
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    if name.endswith("tflite"):
        pytest.importorskip("tflite")
    with pytest.raises(FrontendError, match=message):
        load(path)


def test_objects_that_are_no_model_are_refused_with_their_type():
    with pytest.raises(FrontendError, match=r"object of type builtins\.int"):
        load(3)


def test_bytes_that_are_no_model_are_refused():
    with pytest.raises(FrontendError, match="10 bytes are no ONNX model"):
        load(b"\xff" * 10)


def test_shapes_do_not_apply_to_relax():
    with pytest.raises(FrontendError, match="BindSymbolicVars"):
        load(relu_module(), shapes={"x": (1, 3)})


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tflite", None)
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\0\0\0\0TFL3")
    with pytest.raises(FrontendError, match=r'pip install "tvm-quant\[tflite\]"'):
        load(path)
