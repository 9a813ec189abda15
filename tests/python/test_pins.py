import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tvm_quant import _pins
from tvm_quant.errors import PinError, TvmQuantError

COMMAND = "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0"


def pretend(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    real = metadata.version
    named = {name.replace("_", "-"): version for name, version in versions.items()}

    def version(name: str) -> str:
        if named.get(name) == "missing":
            raise metadata.PackageNotFoundError(name)
        return named.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_the_pins_are_those_of_the_packaging_files():
    repository = Path(_pins.__file__).parents[1]
    pins = [f"{name}=={version}" for name, version in _pins.PINS.items()]
    for name in ("requirements.txt", "requirements-current.txt"):
        assert set(pins) <= set((repository / name).read_text().splitlines())
    assert all(f'"{pin}"' in (repository / "pyproject.toml").read_text() for pin in pins)


def test_the_pinned_releases_are_accepted(monkeypatch):
    pretend(monkeypatch, **{name.replace("-", "_"): pin for name, pin in _pins.PINS.items()})
    _pins.check_pins()


def test_a_newer_ffi_is_refused_with_the_pip_command(monkeypatch):
    pretend(monkeypatch, apache_tvm_ffi="0.1.15")
    with pytest.raises(PinError) as error:
        _pins.check_pins()
    assert "Found apache-tvm-ffi 0.1.15; tvm_quant needs apache-tvm-ffi 0.1.14.post0." in str(
        error.value
    )
    assert str(error.value).endswith(f"Run: {COMMAND}")


def test_another_tvm_is_refused(monkeypatch):
    pretend(monkeypatch, apache_tvm="0.28.0")
    with pytest.raises(
        PinError, match=r"Found apache-tvm 0\.28\.0; tvm_quant needs apache-tvm 0\.27"
    ):
        _pins.check_pins()


def test_a_missing_tvm_is_named(monkeypatch):
    pretend(monkeypatch, apache_tvm="missing")
    with pytest.raises(PinError, match="apache-tvm is not installed"):
        _pins.check_pins()


def test_the_error_is_an_import_error_and_ours():
    assert issubclass(PinError, ImportError)
    assert issubclass(PinError, TvmQuantError)


def test_importing_the_package_beside_a_wrong_ffi_fails_before_tvm_is_loaded(tmp_path: Path):
    """A folder with another ffi's metadata comes first on the path, as a real upgrade would."""
    info = tmp_path / "apache_tvm_ffi-0.1.15.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apache-tvm-ffi\nVersion: 0.1.15\n")
    repository = Path(_pins.__file__).parents[1]
    code = (
        "import sys\n"
        "try:\n"
        "    import tvm_quant\n"
        "except ImportError as error:\n"
        "    print('tvm' in sys.modules, error)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(repository)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("False Found apache-tvm-ffi 0.1.15")
    assert COMMAND in done.stdout
