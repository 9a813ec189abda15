"""Bring your old script: programs for `tvm.relay` and `relay.quantize`, on the TVM of today.

    python tutorials/03_bring_your_old_script.py

A program that imports `tvm_relay` instead of `tvm.relay` keeps its spelling; one that may not be
touched runs by `python -m tvm_relay script.py`. Where results differ on purpose is written in
`python/tvm_relay/DIFFERENCES.md`.
"""

from __future__ import annotations

import os
import subprocess
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
from tvm_quant.errors import ConfigError  # noqa: E402
from tvm_relay import graph_executor  # noqa: E402

OLD_SCRIPT = """
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

data = relay.var("data", shape=(1, 1, 8, 8))
net = relay.nn.conv2d(data, relay.var("weight"), channels=4, kernel_size=(3, 3), padding=(1, 1))
net = relay.nn.global_avg_pool2d(relay.nn.relu(net))
mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(net), net))
weight = np.random.RandomState(0).uniform(-1, 1, (4, 1, 3, 3)).astype("float32")
params = {"weight": tvm.nd.array(weight)}

with tvm.transform.PassContext(opt_level=3):
    with relay.quantize.qconfig(global_scale=4.0, skip_conv_layers=[]):
        mod = relay.quantize.quantize(mod, params)
    lib = relay.build(mod, target="llvm", params=params)

runner = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
runner.set_input("data", tvm.nd.array(np.ones((1, 1, 8, 8), "float32")))
runner.run()
print("the script says:", runner.get_output(0).numpy().ravel().round(3))
"""


def chapter_1() -> None:
    """Run it as it is. In that process, and only there, TVM has the names that it had."""
    title("1. A script that nobody edits: python -m tvm_relay script.py")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "old.py"
        script.write_text(OLD_SCRIPT)
        paths = [*sys.path[:2], os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-m", "tvm_relay", str(script)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            check=True,
        )
    print("   " + done.stdout.strip())
    assert "the script says" in done.stdout


def chapter_2() -> tuple[Any, dict[str, Any]]:
    """Import a model. It comes as Relax, which every function of `tvm_relay` takes."""
    title("2. A front door, with the arguments of old")
    mod, params = relay.frontend.from_onnx(str(demo.model_path()), shape={"image": (1, 1, 8, 8)})
    print(f"   {type(mod).__name__}; weights are constants, so params is {params}")
    return mod, params


def chapter_3(mod: Any, params: dict[str, Any]) -> Any:
    """Quantize. The data set is a list of dictionaries, or a generator of them."""
    title("3. qconfig and quantize, calibrated by KL divergence")

    def calibrate_dataset() -> Any:
        for picture in demo.calibration_data()[:64]:
            yield {"image": picture[None]}

    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        return relay.quantize.quantize(mod, params, dataset=calibrate_dataset())


def chapter_4(mod: Any, quantized: Any) -> None:
    """Build and run both, and count where they agree."""
    title("4. build, set_input, run, get_output")
    images, labels = demo.evaluation_data()
    images, labels = images[:200], labels[:200]
    answers = {}
    for name, network in (("float32", mod), ("int8", quantized)):
        library = relay.build(network, target="llvm")
        runner = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
        answers[name] = np.array([digit(runner, picture) for picture in images])
        print(f"   {name:8} {(answers[name] == labels).mean():.1%} right; {runner.benchmark()}")
    agreement = (answers["float32"] == answers["int8"]).mean()
    print(f"   same answer: {agreement:.1%}")
    assert agreement > 0.97


def digit(runner: Any, picture: np.ndarray) -> int:
    runner.set_input("image", picture[None])
    runner.run()
    return int(runner.get_output(0).numpy().argmax())


def chapter_5(mod: Any, params: dict[str, Any]) -> None:
    """Step beyond. What Relay did not have are more keywords of the same `qconfig`."""
    title("5. Settings that Relay did not have, and typing errors that it did not notice")
    with relay.quantize.qconfig(bias_correction="fast", per_channel=False) as config:
        print(f"   per channel: {config.to_config().per_channel}")
    try:
        with relay.quantize.qconfig(skip_conv_layer=[0]):
            pass
    except ConfigError as error:
        print(f"   ConfigError: {str(error)[:60]}...")


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def main() -> None:
    chapter_1()
    mod, params = chapter_2()
    quantized = chapter_3(mod, params)
    chapter_4(mod, quantized)
    chapter_5(mod, params)


if __name__ == "__main__":
    main()
