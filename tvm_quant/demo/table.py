"""The table of demos. A new network is one file and one row."""

from __future__ import annotations

from tvm_quant.demo import digits, efficientnet

DEMOS = {row.name: row for row in (digits.DEMO, efficientnet.DEMO)}
