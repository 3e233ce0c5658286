"""Print figures of the package's structure: `python -m tests.house [CHECKOUT]`.

An arrow leads from one subpackage or top-level module to another that it imports. A cycle is a set of files that
import one another, directly or by way of others, lazy imports included.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path


def modules(package: Path) -> dict[str, Path]:
    """Dotted name -> file. __main__.py is left out, and so is __init__.py, which stands for what it exports."""
    files = (path for path in package.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    return {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in sorted(files)}


def imports(path: Path) -> set[str]:
    """Every module or name that a file imports, anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the floor"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one file."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, stack = set[str](), [start]
        while stack:
            for following in graph[stack.pop()] - seen:
                seen.add(following)
                stack.append(following)
        reach[start] = seen
    found: list[set[str]] = []
    for name in graph:
        cycle = {other for other in reach[name] if name in reach[other]} | {name}
        if len(cycle) > 1 and cycle not in found:
            found.append(cycle)
    return found


def code_lines(path: Path) -> int:
    """The number of lines that hold code: no blank lines, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def main(root: Path) -> None:
    package = root / "fedray"
    files = modules(package)
    graph = {name: imports(path) & set(files) - {name} for name, path in files.items()}
    owner = {name: name.split(".")[1] for name in files}
    arrows = {(owner[one], owner[used]) for one, found in graph.items() for used in found}
    arrows -= {(name, name) for name in owner.values()}
    every = sorted(package.rglob("*.py"))
    lines = [line for path in every for line in path.read_text(encoding="utf-8").splitlines()]
    print(f"packages {len(set(owner.values()))}, folders {len({path.parent for path in every})}, files {len(every)}")
    print(f"arrows between packages {len(arrows)}, files in cycles {sum(map(len, cycles(graph)))}")
    for cycle in cycles(graph):
        print(f"  cycle: {', '.join(sorted(cycle))}")
    print(f"lines {len(lines)}, of them wider than 120 columns {sum(len(line) > 120 for line in lines)}")
    named = [line for line in lines if re.search(r"\bAny\b", line) and not line.startswith("from typing")]
    print(f"lines that name Any {len(named)}")
    print("code lines of each algorithm:")
    for path in sorted((package / "algorithms").glob("*.py")):
        print(f"  {path.name:<14}{code_lines(path):>5}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
