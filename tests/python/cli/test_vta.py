"""The commands for VTA."""

import numpy as np
import pytest

from tvm_quant import demo


@pytest.fixture(scope="module")
def digits(invoke, tmp_path_factory):
    """The demo's network, quantized for VTA."""

    folder = tmp_path_factory.mktemp("digits")
    np.savez(folder / "data.npz", image=demo.calibration_data()[:32])
    path = folder / "digits.tvmq"
    result = invoke(
        *("quantize", demo.model_path(), "--data", folder / "data.npz", "--hardware", "vta"),
        *("--shape", "image=1,1,8,8", "-o", path),
    )
    assert result.exit_code == 0, result.output
    return path


def test_layers_lists_what_vta_computes_and_what_it_does_not(invoke, digits):
    result = invoke("vta", "layers", digits)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].strip() == "region_0: 1.2 M multiply-adds"
    assert lines[1].split() == ["layer", "kind", "reads", "weight", "output", "shift"]
    convolutions = [line for line in lines if " Convolution " in line]
    assert len(convolutions) >= 13
    assert lines[-1].startswith("on the CPU: ")
    assert "conv2d" not in lines[-1]


def test_trace_tells_where_cycles_go_and_writes_text_and_picture(invoke, digits, tmp_path):
    text, picture = tmp_path / "program.txt", tmp_path / "timeline.png"
    result = invoke("vta", "trace", digits, "--disassembly", text, "--timeline", picture)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert "M cycles of the model" in lines[0]
    assert len([line for line in lines if "%" in line]) > 13
    listing = text.read_text().splitlines()
    assert listing[0].startswith("# ") and listing[-1].endswith("compute FINISH")
    assert {line.split()[2] for line in listing if not line.startswith("#")} >= {"LOAD", "GEMM"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_region_that_does_not_exist_is_refused(refused, digits):
    refused("vta", "trace", digits, "--region", 7, message="no region 7 in this network, it has 1")


def test_a_compiled_network_runs_for_vta(invoke, digits, tmp_path):
    library = tmp_path / "digits.so"
    built = invoke("compile", digits, "-o", library, "--target", "vta")
    assert built.exit_code == 0, built.output
    assert library.is_file() and "quantized for" not in built.output
    np.savez(tmp_path / "data.npz", image=demo.evaluation_data()[0][:3])
    found = []
    for target in ("vta", "llvm"):
        output = tmp_path / f"{target}.npz"
        data = tmp_path / "data.npz"
        ran = invoke("run", digits, "--data", data, "-o", output, "--target", target)
        assert ran.exit_code == 0, ran.output
        found.append(np.load(output)["output0"])
    np.testing.assert_array_equal(*found)
