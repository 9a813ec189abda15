"""Pictures."""

import numpy as np
import pytest
from PIL import Image

from tvm_quant.errors import ArtifactError
from tvm_quant.report import LayerSqnr, Span, plot_histogram, plot_layers, plot_timeline

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


def test_a_timeline_has_a_bar_where_a_unit_was_busy(tmp_path):
    spans = [
        Span(row="load", kind="LOAD", start=0, end=50),
        Span(row="compute", kind="GEMM", start=50, end=100),
    ]
    plot_timeline(tmp_path / "t.png", spans)
    with Image.open(tmp_path / "t.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    plain = pixels[:, : pixels.shape[1] * 3 // 4]  # without the legend
    blue, orange = (
        np.argwhere(np.abs(plain - colour).sum(axis=2) < 10).mean(axis=0)
        for colour in ((31, 119, 180), (255, 127, 14))
    )
    assert (orange > blue).all()  # below, and later


def test_an_unknown_picture_format_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"no picture format 'txt'; choose .*png"):
        plot_layers(tmp_path / "l.txt", LAYERS)
    with pytest.raises(ArtifactError, match="there is no folder"):
        plot_layers(tmp_path / "none" / "l.png", LAYERS)
