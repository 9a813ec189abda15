"""Imports point one way: a part of the package knows only the parts below it."""

import ast
from pathlib import Path

import tvm_quant

PACKAGE = Path(tvm_quant.__file__).parent

# From the bottom up. Parts on one line do not know each other.
ORDER = (
    ("errors",),
    ("_ffi", "_pins", "atomic", "ir", "lists"),
    ("op",),
    ("config",),
    ("hardware", "statistics", "dataset", "frontend"),
    ("estimator", "placement", "backend"),
    ("transform",),
    ("quantize",),
    ("artifact", "export"),
    ("report",),
    ("search",),
    ("bench", "demo"),
    ("cli",),
)
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def modules_imported_by(path: Path) -> set[str]:
    """Dotted names that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported_by(path: Path) -> set[str]:
    names = modules_imported_by(path)
    return {name.split(".")[1] for name in names if name.startswith("tvm_quant.")}


def sources() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]


def test_every_part_has_a_place_in_the_order():
    assert {part_of(path) for path in sources()} <= set(RANK)


def test_no_part_imports_what_stands_above_or_beside_it():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports tvm_quant.{other}"
        for path in sources()
        for other in sorted(parts_imported_by(path))
        if other != part_of(path) and RANK.get(other, -1) >= RANK[part_of(path)]
    ]
    assert wrong == []


def test_nothing_in_the_package_imports_the_relay_spellings():
    names = {name for path in sources() for name in modules_imported_by(path)}
    assert not [name for name in names if name.split(".")[0] == "tvm_relay"]
