"""Folders of images and array files."""

import numpy as np
import pytest
from PIL import Image

from tvm_quant.dataset import DatasetWarning, Preprocess, as_dataset
from tvm_quant.errors import DatasetError
from tvm_quant.ir import TensorInfo

INPUT = [TensorInfo(name="data", shape=(1, 3, 8, 8), dtype="float32")]
SPEC = Preprocess(resize=8, layout="NCHW")


def paint(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 12), (shade, shade, shade)).save(path)


@pytest.fixture
def folder(tmp_path):
    for index in range(6):
        paint(tmp_path / "images" / f"{index}.png", 10 + index)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    return tmp_path


def shades(dataset):
    return [float(batch["data"][0, 0, 0, 0]) for batch in dataset]


def labels(dataset):
    return [int(batch.labels[0]) for batch in dataset.with_labels()]


def test_images_come_in_the_order_of_their_names(folder):
    dataset = as_dataset(folder, INPUT, preprocess=SPEC)
    assert shades(dataset) == [10, 11, 12, 13, 14, 15]
    assert not dataset.labelled
    assert "(6 images)" in dataset.description


def test_a_limit_takes_evenly_spaced_images(folder):
    assert shades(as_dataset(folder, INPUT, preprocess=SPEC, limit=3)) == [10, 12, 14]


def test_labels_come_from_the_table(folder):
    rows = "".join(f"{index}.png,{index * 7}\n" for index in range(6))
    (folder / "labels.csv").write_text("file,label\n" + rows)
    assert labels(as_dataset(folder, INPUT, preprocess=SPEC)) == [0, 7, 14, 21, 28, 35]


def test_labels_come_from_class_folders(tmp_path):
    for name, shade in (("cat/b.png", 1), ("ant/a.png", 2), ("ant/c.png", 3)):
        paint(tmp_path / name, shade)
    dataset = as_dataset(tmp_path, INPUT, preprocess=SPEC)
    assert shades(dataset) == [2, 3, 1]
    assert labels(dataset) == [0, 0, 1]


def test_a_table_of_boxes_gives_no_labels(folder):
    (folder / "labels.csv").write_text("file,label,cx\n0.png,1,0.5\n0.png,2,0.1\n")
    assert not as_dataset(folder, INPUT, preprocess=SPEC).labelled


def test_a_table_with_gaps_is_not_used(folder):
    (folder / "labels.csv").write_text("file,label\n0.png,1\n")
    with pytest.warns(DatasetWarning, match="has no row for 5 of 6 images, such as 1.png"):
        dataset = as_dataset(folder, INPUT, preprocess=SPEC)
    assert not dataset.labelled


def test_images_of_the_shared_folder_match_the_model(shared):
    spec = Preprocess(short_side=256, crop=224, scale=1 / 255)
    signature = [TensorInfo(name="data", shape=(1, 3, 224, 224), dtype="float32")]
    dataset = as_dataset(shared / "data/imagenet_dev500", signature, preprocess=spec, limit=3)
    assert dataset.labelled
    assert dataset.ranges["data"][0] >= 0
    assert dataset.ranges["data"][1] <= 1


def test_an_npz_of_images_is_streamed_and_preprocessed(shared):
    path = shared / "data/cifar10/cifar10_calib_1000.npz"
    signature = [TensorInfo(name="data", shape=(1, 3, 32, 32), dtype="float32")]
    spec = Preprocess(scale=1 / 255, array="x")
    dataset = as_dataset(path, signature, preprocess=spec, limit=20)
    with np.load(path) as arrays:
        expected = spec(arrays["x"][:20])
        np.testing.assert_array_equal(np.concatenate([b["data"] for b in dataset]), expected)
        assert labels(dataset) == arrays["y"][:20].tolist()


def test_fortran_order_and_one_sample_files_are_read(tmp_path):
    data = np.asfortranarray(np.arange(1, 25, dtype=np.float32).reshape(4, 6))
    np.savez(tmp_path / "f.npz", x=data)
    signature = [TensorInfo(name="x", shape=(2, 6), dtype="float32")]
    batches = [batch["x"] for batch in as_dataset(tmp_path / "f.npz", signature)]
    np.testing.assert_array_equal(np.concatenate(batches), data)
    np.savez(tmp_path / "one.npz", x=data[0])
    one = [TensorInfo(name="x", shape=(1, 6), dtype="float32")]
    with pytest.warns(DatasetWarning, match="single sample"):
        (batch,) = as_dataset(tmp_path / "one.npz", one)
    np.testing.assert_array_equal(batch["x"], data[:1])


def test_arrays_of_an_npz_bind_by_name(tmp_path):
    np.savez(tmp_path / "d.npz", b=np.ones((3, 2)), a=np.full((3, 1), 2), label=np.arange(3))
    signature = [
        TensorInfo(name="a", shape=(None, 1), dtype="float32"),
        TensorInfo(name="b", shape=(None, 2), dtype="float32"),
    ]
    (batch,) = as_dataset(tmp_path / "d.npz", signature).with_labels()
    assert batch.inputs["a"].tolist() == [[2]] * 3
    assert batch.labels.tolist() == [0, 1, 2]


X = [TensorInfo(name="x", shape=(None, 2), dtype="float32")]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"p": np.ones((2, 2)), "q": np.ones((2, 2))},
            "has 2 arrays that could be input 'x': 'p' (2, 2) float64, 'q' (2, 2) float64. Name",
        ),
        ({"x": np.ones((2, 2)), "q": np.ones(2)}, "unknown name 'q'. The model has input 'x'"),
        (
            {"x": np.ones((2, 2)), "y": np.ones(3)},
            "the arrays hold different numbers of samples: 'x' 2, 'y' 3",
        ),
        ({"x": np.ones((2, 3))}, "input 'x' has shape (2, 3), but the model takes (?, 2)"),
        ({"x": np.array([[None, 1]], object)}, "array 'x' holds Python objects; save numbers"),
        ({}, "has 0 arrays that could be input 'x'"),
    ],
)
def test_a_wrong_npz_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError) as caught:
        as_dataset(tmp_path / "d.npz", X)
    assert message in str(caught.value)


def test_a_missing_or_damaged_array_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"there is no data file .*none\.npz"):
        as_dataset(tmp_path / "none.npz", X)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DatasetError, match=r"text\.npz is damaged or no NumPy file"):
        as_dataset(tmp_path / "text.npz", X)
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(DatasetError, match=r"text\.npy is damaged or no NumPy file"):
        as_dataset(tmp_path / "text.npy", X)
    path = tmp_path / "flipped.npz"
    np.savez(path, x=np.ones((64, 2), np.float32))
    data = bytearray(path.read_bytes())
    data[300] ^= 255
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"flipped\.npz is damaged"):
        as_dataset(path, X)


def test_an_array_named_by_the_spec_must_exist(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((1, 8, 8, 3), np.uint8))
    with pytest.raises(DatasetError, match=r"has no array 'z'; it holds 'x' \(1, 8, 8, 3\) uint8"):
        as_dataset(tmp_path / "d.npz", INPUT, preprocess=Preprocess(array="z"))


def test_an_npy_file_cannot_feed_two_inputs(tmp_path):
    np.save(tmp_path / "d.npy", np.ones((2, 2)))
    two = [*X, TensorInfo(name="z", shape=(None, 2), dtype="float32")]
    with pytest.raises(DatasetError, match="holds one array, but the model has several inputs"):
        as_dataset(tmp_path / "d.npy", two)


def test_a_wrong_folder_is_refused(tmp_path, folder):
    with pytest.raises(DatasetError, match="there is no file or folder"):
        as_dataset(tmp_path / "none", INPUT, preprocess=SPEC)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(DatasetError, match=r"x\.txt is no data this package reads; give an \.npz"):
        as_dataset(tmp_path / "x.txt", INPUT)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"folder .*empty holds no images"):
        as_dataset(tmp_path / "empty", INPUT, preprocess=SPEC)
    with pytest.raises(
        DatasetError, match=r"how the network wants them is not known.*--preprocess"
    ):
        as_dataset(folder, INPUT)


def test_a_damaged_image_is_named(folder):
    (folder / "images" / "3.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(DatasetError, match=r"cannot decode the image .*3\.png"):
        as_dataset(folder, INPUT, preprocess=SPEC)


def test_a_label_that_is_no_number_is_named(folder):
    (folder / "labels.csv").write_text("file,label\n0.png,cat\n")
    with pytest.raises(DatasetError, match=r"the label of 0\.png is 'cat', expected an integer"):
        as_dataset(folder, INPUT, preprocess=SPEC)


def test_images_of_the_wrong_size_are_named(folder):
    with pytest.raises(
        DatasetError, match=r"image images/0\.png: input 'data' has shape \(1, 3, 12, 16\)"
    ):
        as_dataset(folder, INPUT, preprocess=Preprocess())
