"""Fixtures and markers that every test may use.

shared          path of the models and data that are too big for the repository
rng             a random generator of the same seed for each test
golden          compares a text with a file in golden/, rewritten by `pytest --update-golden`
@isa("avx2")    skips where the CPU lacks a feature       @cuda    skips where there is no GPU
"""

from __future__ import annotations

import functools
import importlib
import os
import platform
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from golden_files import check_golden

# Tests run in several processes. TVM's threads wait by spinning: more of them than cores is slow.
os.environ.setdefault("TVM_NUM_THREADS", "1")

# Time limits of single examples fail on busy machines, not on wrong code.
hypothesis.settings.register_profile("tvm_quant", deadline=None)
hypothesis.settings.load_profile("tvm_quant")

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/python/golden with what the tests produce now",
    )


def pytest_configure() -> None:
    """Import the package before tests run.

    The process that gathers the results of others imports the classes of their warnings in a thread
    for each, and two threads that begin to import one package together break it.
    """
    importlib.import_module("tvm_quant")


def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = {feature for mark in item.iter_markers("isa") for feature in mark.args}
    missing = sorted(needed - cpu_features()) if needed else []
    if missing:
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    if item.get_closest_marker("cuda") and not cuda_is_present():
        pytest.skip("no CUDA device")


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers that do not depend on which tests ran before."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with models/ and data/: $TVM_QUANT_SHARED, else ../shared beside the repository."""
    path = Path(os.environ.get("TVM_QUANT_SHARED", REPOSITORY.parent / "shared"))
    if not (path / "models").is_dir():
        pytest.skip(f"needs models and data in {path}; set TVM_QUANT_SHARED to their folder")
    return path


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` asserts that golden/NAME.txt holds `text`; see golden_files.py."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        check_golden(HERE / "golden" / f"{name}.txt", text, update=update)

    return check


@functools.cache
def cpu_features() -> frozenset[str]:
    """What the CPU can do, in the kernel's names; "vnni" stands for either VNNI form."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return frozenset({platform.machine()})
    lines = (line.partition(":") for line in info.read_text().splitlines())
    words = {
        word
        for key, _, value in lines
        if key.strip() in ("flags", "Features")
        for word in value.split()
    }
    if words & {"avx512_vnni", "avx_vnni"}:
        words.add("vnni")
    return frozenset(words | {platform.machine()})


@functools.cache
def cuda_is_present() -> bool:
    import tvm

    return bool(tvm.cuda(0).exist)
