"""Every file in tutorials/ runs to its end; a folder without any is a failure, not a success."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TUTORIALS = sorted((REPOSITORY / "tutorials").glob("*.py"))


def test_there_are_tutorials():
    assert TUTORIALS


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_tutorial_runs(path: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "python")]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_tutorial_by_hand_needs_numpy_alone(tmp_path: Path):
    """Nothing but NumPy and the standard library is imported when no picture is asked for."""
    code = (
        "import runpy, sys\n"
        f"runpy.run_path({str(TUTORIALS[0])!r}, run_name='__main__')\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "others = roots & {'tvm', 'tvm_quant', 'onnx', 'scipy', 'torch', 'matplotlib'}\n"
        "print('OTHERS', sorted(others))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "OTHERS []"
