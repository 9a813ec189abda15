import pytest
import tvm

from tvm_quant import errors
from tvm_quant.errors import TvmQuantError

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, TvmQuantError)
]


@tvm.transform.module_pass(opt_level=0, name="Raise")
class Raise:
    def __init__(self, error: BaseException):
        self.error = error

    def transform_module(self, mod, _ctx):
        raise self.error


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_leaves_a_pass_as_the_class_that_was_raised(cls):
    sequence = tvm.transform.Sequential([Raise(cls("what, where, next step"))])
    with pytest.raises(TvmQuantError) as caught:
        sequence(tvm.IRModule({}))
    assert type(caught.value) is cls
    assert str(caught.value) == "what, where, next step"


def test_an_interrupt_leaves_a_pass_as_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        Raise(KeyboardInterrupt())(tvm.IRModule({}))
