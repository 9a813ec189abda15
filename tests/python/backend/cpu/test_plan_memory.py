import numpy as np
import pytest
import tvm
from tvm import IRModule, relax

import backend_networks as networks
from plain_tvm import build
from tvm_quant.backend.cpu.plan_memory import PlanMemory
from tvm_quant.ir import constant

R = relax.op
KERNEL = np.random.default_rng(0).normal(size=(3, 3, 1, 1)).astype("float32")


def branching() -> IRModule:
    """conv(flag ? conv(x) : x)."""
    x = relax.Var("x", relax.TensorType((1, 3, 4, 4), "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [flag, x]):
        then = relax.SeqExpr([], builder.normalize(R.nn.conv2d(x, constant(KERNEL))))
        y = builder.emit(relax.If(flag, then, relax.SeqExpr([], x)))
        builder.emit_func_output(builder.emit(R.nn.conv2d(y, constant(KERNEL))))
    return builder.get()


@pytest.mark.parametrize("flag", [True, False])
def test_either_branch_may_be_taken(flag):
    x = networks.normal((1, 3, 4, 4))
    once = np.einsum("oi,nihw->nohw", KERNEL[:, :, 0, 0], x)
    twice = np.einsum("oi,nihw->nohw", KERNEL[:, :, 0, 0], once)
    (result,) = networks.run(branching(), np.bool_(flag), x)
    np.testing.assert_allclose(result, twice if flag else once, rtol=1e-4, atol=1e-5)


def test_without_branches_storage_is_shared():
    def body(builder, x):
        for _ in range(4):
            x = builder.emit(R.exp(x))
        return x

    mod = build(body, x=(64,))
    lower = [relax.transform.LegalizeOps(), relax.transform.ToNonDataflow()]
    lower += [relax.transform.RemovePurityChecking(), relax.transform.CallTIRRewrite()]
    planned = PlanMemory()(tvm.transform.Sequential(lower)(mod))
    assert planned.script().count("R.memory.alloc_storage") == 2
