"""Pictures."""

import numpy as np
import pytest
from PIL import Image

from tvm_quant.errors import ArtifactError
from tvm_quant.report import LayerSqnr, plot_histogram, plot_layers

LAYERS = [LayerSqnr(node=f"conv{i}", op="relax.nn.conv2d", sqnr_db=30.0 - i) for i in range(5)]


def test_histogram_is_a_picture_with_the_range_in_green(tmp_path):
    values = np.random.default_rng(0).normal(size=1000)
    plot_histogram(tmp_path / "h.png", values, low=-1, high=2, title="conv1")
    with Image.open(tmp_path / "h.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert pixels.shape == (360, 960, 3)
    green = (pixels[..., 1] > pixels[..., 0] + 10) & (pixels[..., 1] > pixels[..., 2] + 10)
    assert green.mean() > 0.05


def test_binned_values_are_weighted(tmp_path):
    centres, counts = np.arange(10.0), np.arange(10)
    plot_histogram(tmp_path / "h.svg", centres, low=0, high=5, weights=counts)
    assert "<svg" in (tmp_path / "h.svg").read_text()


def test_layers_are_drawn_as_bars(tmp_path):
    infinite = LayerSqnr(node="exact", op="relax.add", sqnr_db=float("inf"))
    plot_layers(tmp_path / "l.png", [*LAYERS, infinite], title="resnet")
    with Image.open(tmp_path / "l.png") as picture:
        assert picture.size[0] == 960


def test_an_unknown_picture_format_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"no picture format 'txt'; choose .*png"):
        plot_layers(tmp_path / "l.txt", LAYERS)
    with pytest.raises(ArtifactError, match="there is no folder"):
        plot_layers(tmp_path / "none" / "l.png", LAYERS)
