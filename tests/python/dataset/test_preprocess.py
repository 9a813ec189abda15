"""Images to tensors."""

import numpy as np
import pytest
from PIL import Image

from tvm_quant.dataset import Color, Interpolation, Layout, Preprocess
from tvm_quant.errors import DatasetError


def image(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def test_steps_run_in_the_documented_order():
    spec = Preprocess(
        short_side=12,
        crop=(8, 10),
        interpolation="nearest",
        color="BGR",
        scale="1/255",
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.25, 1.0),
    )
    picture = image(24, 36)
    resized = np.asarray(Image.fromarray(picture).resize((18, 12), Image.Resampling.NEAREST))
    cropped = resized[2:10, 4:14, ::-1].astype(np.float32) * np.float32(1 / 255)
    expected = (cropped - np.float32([0.1, 0.2, 0.3])) / np.float32([0.5, 0.25, 1.0])
    result = spec(picture)
    np.testing.assert_array_equal(result, expected.transpose(2, 0, 1)[None])
    assert result.dtype == np.float32


@pytest.mark.parametrize(("size", "expected"), [((20, 40), (10, 20)), ((40, 20), (20, 10))])
def test_short_side_keeps_the_aspect_ratio(size, expected):
    assert Preprocess(short_side=10, layout="NHWC")(image(*size)).shape == (1, *expected, 3)


def test_resize_ignores_the_aspect_ratio():
    assert Preprocess(resize=[6, 9])(image(20, 20)).shape == (1, 3, 6, 9)


def test_gray_images_fit_colour_models_and_colour_images_fit_gray_models():
    gray = image(4, 4)[:, :, 0]
    in_color = Preprocess(layout="NHWC")(gray)
    np.testing.assert_array_equal(in_color[0], np.repeat(gray[:, :, None], 3, axis=2))
    luma = Preprocess(color="gray")(image(4, 4))
    expected = image(4, 4).astype(np.float32) @ np.float32([0.299, 0.587, 0.114])
    np.testing.assert_array_equal(luma[0, 0], expected)


def test_a_batch_of_arrays_is_processed_sample_by_sample():
    batch = np.stack([image(5, 5, seed) for seed in range(3)])
    spec = Preprocess(scale=0.5)
    np.testing.assert_array_equal(spec(batch), np.concatenate([spec(one) for one in batch]))
    assert spec(batch[:, :, :, 0]).shape == (3, 3, 5, 5)


def test_yaml_round_trip(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("short_side: 256\ncrop: 224\nscale: 1/255\nmean: [0.5, 0.5, 0.5]\ncolor: bgr\n")
    spec = Preprocess.from_yaml(path)
    assert spec == Preprocess(
        short_side=256, crop=(224, 224), scale=1 / 255, mean=(0.5, 0.5, 0.5), color=Color.BGR
    )
    assert Preprocess.from_dict(spec.to_dict()) == spec
    assert (spec.layout, spec.interpolation) == (Layout.NCHW, Interpolation.BILINEAR)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 3}, "unknown field 'size'; the fields are resize, short_side, crop,"),
        ({"color": "CMYK"}, "'color' is 'CMYK'; choose one of RGB, BGR, GRAY"),
        ({"layout": "HWC"}, "'layout' is 'HWC'; choose one of NCHW, NHWC"),
        ({"interpolation": "cubic"}, "'interpolation' is 'cubic'; choose one of nearest, bilinear"),
        ({"crop": 0}, "'crop' is 0; expected a positive number of pixels or a pair"),
        ({"resize": [1, 2, 3]}, "'resize' is [1, 2, 3]; expected a positive number"),
        ({"short_side": "big"}, "'short_side' is 'big'; expected a positive number"),
        ({"resize": 4, "short_side": 4}, "'resize' and 'short_side' exclude each other"),
        ({"std": [1, 0, 1]}, "'std' is (1.0, 0.0, 1.0); a divisor cannot be 0"),
        ({"mean": [1, 2]}, "'mean' has 2 values, expected 1 or 3 for color RGB"),
        (
            {"mean": [1, 2, 3], "color": "gray"},
            "'mean' has 3 values, expected 1 or 1 for color GRAY",
        ),
        ({"scale": "one"}, "'scale' is 'one'; expected finite numbers"),
        ({"mean": float("nan")}, "'mean' is nan; expected finite numbers"),
    ],
)
def test_a_wrong_field_is_refused_with_the_choices(fields, message):
    with pytest.raises(DatasetError) as caught:
        Preprocess.from_dict(fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the preprocessing file"),
        ("a: [", "is not a YAML file"),
        ("", "holds no fields; a preprocessing file reads like 'crop: 224'"),
        ("crop: -1", "'crop' is -1"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "p.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        Preprocess.from_yaml(path)


@pytest.mark.parametrize(
    ("spec", "data", "message"),
    [
        (
            Preprocess(crop=9),
            image(8, 20),
            "an image of 8 x 20 pixels is smaller than the crop of 9 x 9",
        ),
        (Preprocess(resize=4), np.zeros((8, 8, 3)), "images of dtype float64 cannot be resized"),
        (Preprocess(), np.zeros((1, 3, 8, 8)), "an array of shape (1, 3, 8, 8) holds no images"),
    ],
)
def test_data_that_is_no_image_is_refused(spec, data, message):
    with pytest.raises(DatasetError) as caught:
        spec(data)
    assert message in str(caught.value)
