import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as S

from tvm_quant.backend import Functions


@I.ir_module
class Module:
    @S.function
    def first(x: S.Tensor(("n", 2), "float32")):
        y = S.add(x, x)
        pair = (y, x)
        shape = S.shape_of(y)
        result = (pair, y, shape)
        return result  # noqa: RET504

    @S.function
    def second(
        pair: S.Tuple(S.Tensor(("n", 2), "float32"), S.Tensor(("n", 2), "float32")),
        x: S.Tensor(("n", 2), "float32"),
    ):
        y = S.add(pair[0], x)
        result = (y,)
        return result  # noqa: RET504


def test_values_pass_from_one_function_to_the_next():
    functions = Functions(Module)
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    pair, y, shape = functions.call("first", x)
    assert isinstance(y, tvm.runtime.Tensor)
    (z,) = functions.call("second", pair, x.T.copy().T)  # of any memory layout
    np.testing.assert_array_equal(functions.arrays(z), [3 * x])
    np.testing.assert_array_equal(functions.arrays(pair), [2 * x, x])
    assert functions.arrays(shape) == []
    assert functions.arrays(x)[0] is x


def test_functions_can_be_pickled_and_a_process_loads_them_once():
    functions = Functions(Module)
    sent = pickle.dumps(functions)
    copy = pickle.loads(sent)
    assert pickle.loads(sent) is copy
    assert pickle.dumps(copy) == sent
    x = np.float32([[1, 2]])
    (_, y, _), (_, z, _) = functions.call("first", x), copy.call("first", x)
    np.testing.assert_array_equal(functions.arrays(y), copy.arrays(z))


def test_each_thread_can_call_them():
    functions = Functions(Module)
    inputs = [np.full((1, 2), value, "float32") for value in range(8)]
    with ThreadPoolExecutor(2) as executor:
        results = list(executor.map(lambda x: functions.call("first", x)[1].numpy(), inputs))
    np.testing.assert_array_equal(results, [2 * x for x in inputs])
