"""Programs as TVM 0.16 printed them, with the inputs and outputs of its own run of each.

programs/NAME.relay is the text, with metadata; programs/values.npz holds NAME/in0, NAME/out0, ...
Three are what `relay.quantize` made of programs/float_block.relay.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tvm_relay.expr import Constant
from tvm_relay.structural import assert_structural_equal
from tvm_relay.text import astext, parse
from tvm_relay.walk import post_order

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.relay"))


def text_of(name):
    return (PROGRAMS / f"{name}.relay").read_text()


def lines_of(text):
    """The lines of the program, without types in comments and without numbers of nodes, sorted.

    TVM numbers operands in an order of its own; it writes 6 digits, and numbers variables of one
    name through the module.
    """
    program = re.sub(r" /\*.*?\*/", "", text.split("#[metadata]")[0])
    program = re.sub(r"%\d+|(?<=%p)\d+", "%", program)
    program = re.sub(r"(?<=%[xyz])1\b", "", program)
    return sorted(line.strip() for line in program.splitlines() if line.strip())


def test_there_are_many_programs():
    assert len(NAMES) >= 49


@pytest.mark.parametrize("name", NAMES)
def test_a_program_reads_the_same_after_it_is_written(name):
    mod = parse(text_of(name), source_name=f"{name}.relay")
    assert_structural_equal(parse(astext(mod)), mod)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"constants", "simulated"}))
def test_a_program_is_written_as_tvm_writes_it(name):
    text = text_of(name)
    assert lines_of(astext(parse(text))) == lines_of(text)


def test_digits_that_tvm_cuts_off_are_the_only_difference_of_constants():
    ours, theirs = (
        lines_of(t) for t in (astext(parse(text_of("constants"))), text_of("constants"))
    )
    assert [line for line in ours if line not in theirs] == ['% = cast(0.1f16, dtype="float32");']


def test_the_metadata_is_written_as_tvm_reads_it():
    """The same tensor; its node names the same fields."""
    text = text_of("shared_constant")
    mod = parse(text)
    theirs, ours = (json.loads(t.split("#[metadata]")[1]) for t in (text, astext(mod)))
    assert ours["b64ndarrays"] == theirs["b64ndarrays"]
    nodes = [
        next(node for node in saved["nodes"] if node["type_key"] == kind)
        for kind in ("relay.Constant", "VirtualDevice")
        for saved in (ours, theirs)
    ]
    for mine, other in zip(nodes[::2], nodes[1::2], strict=True):
        assert mine["attrs"].keys() == other["attrs"].keys()
    (constant,) = {
        id(e): e for e in post_order(mod["main"].body) if isinstance(e, Constant)
    }.values()
    assert constant.data.shape == (2, 3) and constant.data.dtype == np.float32
