import numpy as np
import pytest

from onnx_models import assert_close, operators, results
from tvm_quant.errors import FrontendError
from tvm_quant.frontend import load
from tvm_quant.ir import bindings, node_name, op_name

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """Convolution, batch norm, dropout, and a sum that no module of torch.nn computes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout()

    def forward(self, x):
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


class Network(nn.Module):
    """Two blocks and a classifier."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.blocks(x).mean(dim=(2, 3)))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def image():
    return torch.randn(2, 3, 8, 8)


def assert_loads(source, network, image, **more):
    mod, params = load(source, **more)
    network.eval()
    wanted = network(image).detach().numpy()
    assert params == {}
    assert_close(results(mod, {str(mod["main"].params[0].name): image.numpy()}), [wanted], 1e-5)
    return mod


def test_a_module_is_exported_in_inference_mode_and_left_as_it_was(network, image):
    network.train()
    mod, _ = load(network, example_inputs=(image,))
    assert network.training and network.blocks[0].norm.training
    assert "nn.dropout" not in operators(mod)
    assert_loads(network, network, image, example_inputs=(image.numpy(),))


def test_example_inputs_may_be_given_by_name(network, image):
    assert_loads(network, network, image, example_inputs={"x": image})


def test_layers_keep_the_path_of_their_module_and_functions_their_fx_name(network, image):
    mod, _ = load(network, example_inputs=image)
    func = mod["main"]
    names = {node_name(func, b.var): op_name(b.value) for b in bindings(func) if op_name(b.value)}
    assert {"blocks.0.conv", "blocks.0.norm", "blocks.1.conv", "head", "add_1"} <= set(names)
    assert names["add_1"] == "relax.add"


def test_an_exported_program_with_a_dynamic_batch_is_read(network, image):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(network.eval(), (image,), dynamic_shapes=({0: batch},))
    mod = assert_loads(program, network, image)
    assert not mod["main"].params[0].ty.shape.values[0].same_as(2)


def test_a_saved_program_is_read(network, image, tmp_path):
    path = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(network.eval(), (image,)), path)
    assert_loads(path, network, image)


def test_a_module_without_example_inputs_is_refused(network):
    with pytest.raises(FrontendError, match="'Network' needs example_inputs"):
        load(network)


def test_shapes_are_refused(network):
    with pytest.raises(FrontendError, match="dynamic_shapes"):
        load(network, shapes={"x": (1, 3, 8, 8)})


def test_functions_that_tvm_does_not_convert_are_named(image):
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).real

    with pytest.raises(FrontendError, match=r"_fft_r2c\.default: _fft_r2c"):
        load(Spectrum(), example_inputs=(image,))


def test_a_damaged_program_is_refused(tmp_path):
    path = tmp_path / "damaged.pt2"
    path.write_bytes(b"no program")
    with pytest.raises(FrontendError, match=r"cannot be read as an exported program.*export\.save"):
        load(path)


def test_a_function_that_depends_on_data_is_refused(image):
    class Choice(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(FrontendError, match="cannot trace 'Choice'"):
        load(Choice(), example_inputs=(image,))


def test_several_inputs_and_outputs_stay_apart(image):
    class Two(nn.Module):
        def forward(self, a, b):
            return a + b, a * b

    a, b = image, torch.ones_like(image)
    mod, _ = load(Two(), example_inputs=(a, b))
    got = results(mod, {"a": a.numpy(), "b": np.ones_like(a.numpy())})
    assert_close(got, [(a + b).numpy(), (a * b).numpy()], 1e-6)
