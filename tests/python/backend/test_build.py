import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.target import Target

import backend_networks as networks
import plain_tvm
from tvm_quant.backend import compile
from tvm_quant.errors import BackendError


def test_a_float_network_computes_what_the_plain_build_does():
    mod = networks.float_conv((2, 3, 13, 11), (10, 3, 3, 3), padding=1, strides=2)
    x = networks.normal((2, 3, 13, 11))
    expected = plain_tvm.run_one(mod, x)
    np.testing.assert_allclose(networks.run(mod, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_a_target_without_a_pipeline_of_ours_is_compiled_by_tvm(monkeypatch):
    monkeypatch.delitem(tvm_quant_backends(), "llvm")
    mod = networks.float_conv((1, 3, 4, 4), (2, 3, 1, 1))
    compiled = compile(mod, Target({"kind": "llvm", "mcpu": "generic"}))
    x = networks.normal((1, 3, 4, 4))
    result = relax.VirtualMachine(compiled, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(result.numpy(), plain_tvm.run_one(mod, x))


def test_an_unknown_target_is_refused():
    with pytest.raises(BackendError, match="Unknown target"):
        compile(networks.float_conv((1, 3, 4, 4), (2, 3, 1, 1)), "quantum")


def test_main_still_refuses_wrong_shapes():
    mod = networks.float_conv((1, 3, 4, 4), (2, 3, 1, 1))
    main = relax.VirtualMachine(compile(mod), tvm.cpu())["main"]
    with pytest.raises(RuntimeError, match="shape"):
        main(tvm.runtime.tensor(networks.normal((1, 5, 4, 4))))


def test_an_exported_library_runs_where_tvm_quant_is_not_imported(tmp_path):
    mod = networks.integer_conv((1, 3, 8, 8), (12, 3, 3, 3), padding=1)
    x = networks.codes((1, 3, 8, 8))
    compile(mod).export_library(str(tmp_path / "m.so"))
    np.save(tmp_path / "x.npy", x)
    script = f"""
        import numpy, sys, tvm
        from tvm import relax
        library = tvm.runtime.load_module("{tmp_path}/m.so")
        main = relax.VirtualMachine(library, tvm.cpu())["main"]
        result = main(tvm.runtime.tensor(numpy.load("{tmp_path}/x.npy")))
        assert not any(name.startswith("tvm_quant") for name in sys.modules)
        numpy.save("{tmp_path}/y.npy", result.numpy())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), plain_tvm.run_one(mod, x))


def tvm_quant_backends():
    from tvm_quant.backend import BACKENDS

    return BACKENDS
