"""Deploy a quantized model: the walk-through of Relay's days, and what it leads to now.

    python tutorials/04_deploy_a_quantized_model.py

The network reads handwritten digits and comes with the package. Three ways to find the ranges of
activations are compared: one range assumed for all, ranges by KL divergence, and the estimator that
`tvm_quant` uses by itself. Then the best is exported, loaded and timed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]  # a bare checkout has it there

import numpy as np  # noqa: E402
import tvm  # noqa: E402

import tvm_relay as relay  # noqa: E402
from tvm_quant import demo  # noqa: E402
from tvm_relay import graph_executor  # noqa: E402

SAMPLES = 64
TARGET = "llvm"
#: Settings to compare: those of the old walk-through, and more.
SETTINGS: dict[str, dict[str, Any]] = {
    "global_scale 8": {"global_scale": 8.0, "weight_scale": "power2"},
    "kl_divergence": {"calibrate_mode": "kl_divergence", "weight_scale": "max"},
    "all layers": {
        "calibrate_mode": "robust",
        "weight_scale": "max",
        "skip_conv_layers": None,
        "skip_dense_layer": False,
    },
}


def calibrate_dataset() -> Any:
    """A generator is read once; a list would do as well."""
    for picture in demo.calibration_data()[:SAMPLES]:
        yield {"image": picture[None]}


def quantize(mod: Any, params: dict[str, Any], settings: dict[str, Any]) -> Any:
    """What is not named keeps Relay's default: first convolution and dense layers in float."""
    with relay.quantize.qconfig(**settings):
        return relay.quantize.quantize(mod, params, dataset=calibrate_dataset())


def compiled(network: Any) -> Any:
    """The library, on this machine's CPU."""
    return relay.build(network, target=TARGET)


def logits(library: Any, images: np.ndarray) -> np.ndarray:
    """Outputs of all images, (N, 10), one after the other."""
    runner = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    found = []
    for picture in images:
        runner.run(image=picture[None])
        found.append(runner.get_output(0).numpy())
    return np.concatenate(found)


def main() -> None:
    mod, params = relay.frontend.from_onnx(str(demo.model_path()), shape={"image": (1, 1, 8, 8)})
    images, labels = (part[:200] for part in demo.evaluation_data())
    expected = logits(compiled(mod), images)
    print(f"{'float32':16} {(expected.argmax(1) == labels).mean():7.1%} right")

    libraries = {}
    for name, settings in SETTINGS.items():
        libraries[name] = compiled(quantize(mod, params, settings))
        found = logits(libraries[name], images)
        noise = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        right = (found.argmax(1) == labels).mean()
        print(f"{name:16} {right:7.1%} right, relative error of the logits {noise:.4f}")
        assert right > 0.97

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.so"
        libraries["all layers"].export_library(path)
        loaded = relay.load_module(path)
        runner = graph_executor.GraphModule(loaded["default"](tvm.cpu(0)))
        runner.set_input("image", images[:1])
        print(f"{path.name}: {path.stat().st_size} bytes, {runner.benchmark(repeat=3)}")


if __name__ == "__main__":
    main()
