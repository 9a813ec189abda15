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
