import json

import pytest

from tvm_quant.backend.vta import VtaConfig
from tvm_quant.backend.vta.config import Memory
from tvm_quant.errors import ConfigError


def test_reads_what_it_writes(tmp_path):
    config = VtaConfig(log_block=5, log_acc_buff_size=16)
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps({"TARGET": "sim", "HW_VER": "0.0.2", **config.to_json()}))
    assert VtaConfig.read(path) == config
    assert config.depth(Memory.ACC) == 512


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"LOG_BLOCK": "4"}, "LOG_BLOCK is '4'"),
        ({"LOG_ACC_WIDTH": 4}, "int32 sums"),
        ({"LOG_ACC_BUFF_SIZE": 20}, "a micro-op needs 38 bits"),
        ({"LOG_WGT_BUFF_SIZE": 5}, "WGT has less than one elements"),
        ({"LOG_WAGT": 5}, "LOG_WAGT"),
    ],
)
def test_sizes_that_cannot_be_are_errors(change, message):
    with pytest.raises(ConfigError, match=message):
        VtaConfig.from_json(VtaConfig().to_json() | change)
