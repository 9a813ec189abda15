import numpy as np
import pytest

import tvm_quant
from tvm_quant.bench.datasets import CropThenResize, boxes
from tvm_quant.bench.options import select
from tvm_quant.bench.places import Places, UnavailableError
from tvm_quant.bench.workloads import PERSON_AREA, WORKLOADS, _has_person
from tvm_quant.errors import ConfigError
from tvm_quant.ir import io_signature


def test_patterns_select_rows_in_the_order_of_the_table():
    assert [row.name for row in select(["mnist", "resnet2*"])] == ["resnet20", "mnist"]


def test_without_patterns_the_rows_with_traps_stay_out():
    names = [row.name for row in select(None)]
    assert "resnet20" in names
    assert not [name for name in names if name.startswith("edge/")]


def test_a_pattern_that_matches_nothing_is_refused_with_the_names():
    with pytest.raises(ConfigError, match=r"no network matches 'vgg\*'; there are resnet20"):
        select(["vgg*"])


def test_a_missing_file_says_which_variable_to_set(tmp_path):
    places = Places(shared=tmp_path, cache=tmp_path)
    with pytest.raises(UnavailableError, match="TVM_QUANT_SHARED"):
        WORKLOADS["resnet20"].model(places)


def test_boxes_and_persons_are_read_from_the_table(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / "images" / name).touch()
    small = PERSON_AREA / 2
    (tmp_path / "labels.csv").write_text(
        f"file,class,cx,cy,w,h\na.jpg,5,0.5,0.5,0.2,0.4\na.jpg,0,0.5,0.5,0.5,0.5\nc.jpg,0,.5,.5,1,{small}\n"
    )
    first, second, _ = boxes(tmp_path)
    np.testing.assert_allclose(first, [[5, 0.4, 0.3, 0.6, 0.7], [0, 0.25, 0.25, 0.75, 0.75]])
    assert second.shape == (0, 5)
    assert _has_person(tmp_path).tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", ["resnet20", "mnist", "bc_resnet"])
def test_rows_load_what_their_model_takes(shared, tmp_path, name):
    places = Places(shared=shared, cache=tmp_path)
    row = WORKLOADS[name]
    (info,) = io_signature(tvm_quant.load(row.model(places))[0])
    for load in (row.calibration, row.evaluation):
        samples = load(places)
        batch = next(iter(samples))
        assert {key: (array.shape, str(array.dtype)) for key, array in batch.items()} == {
            info.name: (info.shape, info.dtype)
        }
        assert len(samples.labels) == len(samples)


def test_crop_then_resize_keeps_the_centre():
    image = np.zeros((80, 100, 3), np.uint8)
    image[8:72, 18:82] = 200
    resized = CropThenResize(size=16, margin=4)(image)
    assert resized.shape == (1, 16, 16, 3)
    assert resized.min() > 100  # at the edge, the filter sees what lies beyond
    np.testing.assert_array_equal(resized[0, 2:-2, 2:-2], 200)
