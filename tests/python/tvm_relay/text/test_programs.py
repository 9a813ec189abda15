"""Programs as TVM 0.16 printed them, with the inputs and outputs of its own run of each.

programs/NAME.relay is the text, with metadata; programs/values.npz holds NAME/in0, NAME/out0, ...
Three are what `relay.quantize` made of programs/float_block.relay.
"""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from plain_tvm import QUICK
from tvm_relay.expr import Constant
from tvm_relay.structural import assert_structural_equal
from tvm_relay.text import astext, parse
from tvm_relay.to_relax import to_relax
from tvm_relay.ty import TupleType
from tvm_relay.walk import post_order

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.relay"))


def text_of(name):
    return (PROGRAMS / f"{name}.relay").read_text()


def lines_of(text):
    """The lines of the program, sorted, without types in comments and without numbers of nodes.

    TVM has an order of its own for operands and attributes, and numbers variables of one name
    through the module.
    """
    program = re.sub(r" /\*.*?\*/", "", text.split("#[metadata]")[0])
    program = re.sub(r"%\d+|(?<=%p)\d+", "%", program)
    program = re.sub(r"(?<=%[xyz])1\b", "", program)
    return sorted(
        sorted(line.split(", ")) for line in re.sub(r"[(){};]", ", ", program).split("\n")
    )


@functools.cache
def values():
    """Arrays of all runs: {program: {"in": [...], "out": [...]}}."""
    found = {name: {"in": {}, "out": {}} for name in NAMES}
    with np.load(PROGRAMS / "values.npz") as file:
        for key in file.files:
            name, kind, index = re.fullmatch(r"(.*)/(in|out)(\d+)", key).groups()
            found[name][kind][int(index)] = file[key]
    return {
        name: {kind: [arrays[i] for i in sorted(arrays)] for kind, arrays in kinds.items()}
        for name, kinds in found.items()
    }


def fields_of(value):
    """Tensors of a nested tuple, one by one."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    return [array for field in value for array in fields_of(field)]


def filled(kind, arrays):
    """A tensor, or a nested tuple of tensors, of a type."""
    if isinstance(kind, TupleType):
        return tuple(filled(field, arrays) for field in kind.fields)
    return tvm.runtime.tensor(next(arrays))


def results(name):
    """What the Relax module of a program computes of the inputs of TVM's run."""
    mod = parse(text_of(name))
    arrays = iter(values()[name]["in"])
    inputs = [filled(param.type_annotation, arrays) for param in mod["main"].params]
    machine = relax.VirtualMachine(tvm.compile(to_relax(mod), QUICK), tvm.cpu())
    return fields_of(machine["main"](*inputs))


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


#: TVM could not run `composite`.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"composite"}))
def test_a_program_computes_what_tvm_computed(name):
    expected = values()[name]["out"]
    got = results(name)
    assert len(got) == len(expected) > 0
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_composite_function_computes_its_body():
    (x,) = values()["composite"]["in"]
    (got,) = results("composite")
    np.testing.assert_allclose(got, np.maximum(x + np.exp(x), 0), rtol=1e-5)


def test_digits_that_tvm_cuts_off_are_the_only_difference_of_constants():
    ours, theirs = (
        lines_of(t) for t in (astext(parse(text_of("constants"))), text_of("constants"))
    )
    assert [line for line in ours if line not in theirs] == [
        ["", "", "  % = cast", "0.1f16", 'dtype="float32"']
    ]


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
