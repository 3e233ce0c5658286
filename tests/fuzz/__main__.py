"""Feed damaged files to everything that reads files, for some minutes.

    python -m tests.fuzz --minutes 10 --seed 0
    python -m tests.fuzz --seed 0 --only 4711    # one file again, with its traceback

A reader must accept a damaged file, or refuse it with a ValueError that names it. Any other error, a process that dies,
more than SECONDS of work or more than GIGABYTES of memory are findings: the file is kept, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.play import case, fuzz, played


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="play one file alone, without limits")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            kind, content = case(options.seed, options.only)
            print(f"{kind}: {content[:200]!r}")
            print(played(kind, content, Path(folder)) or "fine")
        return 0
    keep = Path(tempfile.mkdtemp(prefix="fedray-fuzz-"))
    done, findings = fuzz(options.seed, 60 * options.minutes, options.processes, keep)
    print(f"{done:,} damaged files, {len(findings)} findings{f', kept in {keep}' if findings else ''}")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
