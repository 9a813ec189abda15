"""Front ends that other packages bring."""

import pytest

from tvm_quant.frontend import onnx
from tvm_quant.frontend.plugins import GROUP, FrontendTable


@pytest.fixture
def install(tmp_path, monkeypatch):
    """`install(name, code)` makes a package that announces `ROW` of its code under that name."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(name: str, code: str) -> None:
        (tmp_path / f"plugin_{name}.py").write_text(code)
        info = tmp_path / f"plugin_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: plugin_{name}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = plugin_{name}:ROW\n")

    return make


ROW = """
from tvm_quant.frontend.base import Frontend
ROW = Frontend(name="{name}", reads="{reads}", accepts=lambda source: False, load=None)
"""


def test_a_package_brings_a_row(install):
    install("acme", ROW.format(name="acme", reads="an .acme file"))
    table = FrontendTable([onnx.FRONTEND])
    assert table["acme"].reads == "an .acme file"
    assert next(iter(table)) == "onnx" and len(table) == len(set(table))


def test_a_package_replaces_no_row_of_ours(install):
    install("onnx", ROW.format(name="onnx", reads="anything"))
    assert FrontendTable([onnx.FRONTEND])["onnx"] is onnx.FRONTEND


@pytest.mark.parametrize(
    ("code", "message"),
    [("import nothing_of_the_kind", "No module named"), ("ROW = 1", "is no Frontend")],
)
def test_a_package_that_cannot_be_used_is_left_out_with_a_warning(install, code, message):
    install("broken", code)
    table = FrontendTable([onnx.FRONTEND])
    with pytest.warns(UserWarning, match=message):
        assert "broken" not in table
    assert "onnx" in table
