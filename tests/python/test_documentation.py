"""The Python examples in the Markdown files run, in order, each file with names of its own."""

import re
from pathlib import Path

import pytest
import typer

from tvm_quant.cli import app

REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = sorted(REPOSITORY.glob("*.md"))
COMMAND = re.compile(r"^ *tvm-quant ([a-z].*)$", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(path: Path) -> list[str]:
    return BLOCK.findall(path.read_text())


def test_the_readme_has_examples():
    assert python_blocks(REPOSITORY / "README.md")


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if python_blocks(path)], ids=lambda path: path.name
)
def test_the_examples_run(path: Path, capsys: pytest.CaptureFixture[str]):
    names: dict[str, object] = {"__name__": path.stem}
    for block in python_blocks(path):
        exec(compile(block, str(path), "exec"), names)
    if path.name == "README.md":
        assert re.search(r"9\d\.\d% of 600 digits read right", capsys.readouterr().out)


def test_every_make_target_in_the_documents_exists():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    command = re.compile(r"^(?:    )?make ([a-z -]+)|`make ([a-z -]+)`", re.MULTILINE)
    found = [words for path in DOCUMENTS for words in command.findall(path.read_text())]
    named = {word for words in found for word in " ".join(words).split()}
    assert named
    assert named <= targets


def test_every_command_in_the_documents_has_the_options_it_shows():
    group = typer.main.get_command(app)
    pages = [*DOCUMENTS, *REPOSITORY.glob("tutorials/*.py"), REPOSITORY / "tvm_quant/demo/run.py"]
    lines = {line for page in pages for line in COMMAND.findall(page.read_text())}
    assert lines
    for line in lines:
        name, *words = line.partition("  ")[0].split()
        command = group.commands[name]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line
