"""Make every write fail once: for every n, the n-th change to a run's folder meets a full or a broken disk.

    python -m tests.full_disk           # some seconds per n; resumes where it was stopped

A run of three rounds must end with a message that names the place and the remedy, or finish with the right bits. No
client may be blamed. If it ended, `resume` on a sound disk must give the bits of an undisturbed run.
"""

from __future__ import annotations

import argparse
import errno
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from benchmarks.study import table, write
from fedray.runs.folder import RunFolder
from tests.engine.runs import same
from tests.power.play import ROUNDS, Player, player
from tests.power.shim import Shim

COMMAND = "python -m tests.full_disk"
KIND = "one actor"
GOES_ON = "continues with the same bits"
ENDS = "ends with words; resumed, the same bits"


@dataclass(frozen=True)
class Disk:
    """How a disk fails."""

    error: int
    lasting: bool  # whether all later calls fail too


DISKS = {
    "full from the n-th call on": Disk(errno.ENOSPC, True),
    "fails at the n-th call": Disk(errno.EIO, False),
}


@dataclass(frozen=True)
class Bench:
    """Plays runs on disks that fail."""

    shim: Shim
    play: Player
    straight: Path  # an undisturbed run

    def calls(self, disk: Disk, folder: Path) -> int:
        """The number of a run's calls that can fail."""
        self.shim.watch(folder, error=disk.error)
        said = self.play(folder, KIND)
        calls = self.shim.stop()
        assert said == {}, said
        same(folder, self.straight, ROUNDS)
        return calls

    def fail(self, disk: Disk, number: int, folder: Path) -> str:
        """The outcome, in words, of a run whose call `number` fails. AssertionError if it breaks the rules."""
        folder.mkdir()
        self.shim.watch(folder, fail_at=number, error=disk.error, lasting=disk.lasting)
        said = self.play(folder, KIND)
        self.shim.stop()
        blamed = RunFolder(folder).rows("failures.jsonl")
        assert not blamed, f"a client was blamed: {blamed[0]}"
        if said:
            assert said["kind"] == "RunError", f"{said['kind']}: {said['error']}\n{said['traceback']}"
            assert str(folder) in said["error"] and "fedray resume" in said["error"], said["error"]
            again = self.play(folder, KIND)
            assert not again, f"resumed: {again['kind']}: {again['error']}\n{again['traceback']}"
        same(folder, self.straight, ROUNDS)
        assert not list(folder.rglob("*.tmp")), "temporary files have stayed"
        return ENDS if said else GOES_ON


@contextmanager
def bench(scratch: Path) -> Iterator[Bench]:
    shutil.rmtree(scratch, ignore_errors=True)  # left by a command that was stopped
    shim = Shim(scratch / "shim")
    with player(shim) as play:
        straight = scratch / "straight"
        assert play(straight, KIND) == {}
        yield Bench(shim, play, straight)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scratch", type=Path, default=Path(tempfile.gettempdir()) / "fedray-full-disk", help="keeps what is done"
    )
    parser.add_argument("--players", type=int, default=2, help="runs at a time")
    options = parser.parse_args()
    found = everything(options.scratch, options.players)
    bad = {key: what for key, what in found.items() if what not in (GOES_ON, ENDS)}
    for key, what in bad.items():
        print(f"{key}: {what}", file=sys.stderr)
    if not bad:
        page(found)
        shutil.rmtree(options.scratch)
    return 1 if bad else 0


def everything(scratch: Path, players: int) -> dict[str, str]:
    """Disk and n -> the outcome of the run. Runs that went well in an earlier command are not repeated."""
    scratch.mkdir(parents=True, exist_ok=True)
    done = scratch / "done.json"
    found: dict[str, str] = json.loads(done.read_text()) if done.exists() else {}
    found = {key: what for key, what in found.items() if what in (GOES_ON, ENDS)}
    began, benches = time.monotonic(), SimpleQueue[Bench]()

    def fail(item: tuple[str, int]) -> None:
        (name, number), mine = item, benches.get()
        key = f"{name}: {number}"
        folder = scratch / key.replace(" ", "-").replace(":", "")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            found[key] = mine.fail(DISKS[name], number, folder)
            shutil.rmtree(folder)
        except (AssertionError, OSError, ValueError) as error:
            found[key] = re.sub(r"\x1b\[[\d;]*m", "", str(error))
        finally:
            benches.put(mine)
        print(f"{time.monotonic() - began:6.0f} s  {key}: {found[key].splitlines()[0]}", flush=True)
        done.write_text(json.dumps(found, indent=1))

    with ExitStack() as stack, ThreadPoolExecutor(players) as threads:
        made = [stack.enter_context(bench(scratch / f"player-{number}")) for number in range(players)]
        items = []
        for name, disk in DISKS.items():
            shutil.rmtree(scratch / "count", ignore_errors=True)
            items += [(name, number) for number in range(1, made[0].calls(disk, scratch / "count") + 1)]
        for one in made:
            benches.put(one)
        left = [(name, number) for name, number in items if f"{name}: {number}" not in found]
        random.Random(0).shuffle(left)  # so that the first runs already cover all parts of a run
        print(f"{len(found)} of {len(items)} are done", flush=True)
        list(threads.map(fail, left))
    return found


def page(found: dict[str, str]) -> None:
    rows = []
    for name in DISKS:
        became = Counter(what for key, what in found.items() if key.startswith(f"{name}:"))
        rows.append({"the disk": name, "calls": became.total(), ENDS: became[ENDS], GOES_ON: became[GOES_ON]})
    text = f"""# Every write that fails

*Calls* is the number of calls with which a toy run of {ROUNDS} rounds changes its folder (files made, written, synced,
renamed; on a broken disk also removed). For each n, one run has a disk that fails at the n-th call. No run showed a
traceback or blamed a client. Each run that ended named the place and `fedray resume`.

{table(rows)}"""
    write("full_disk", text, {"found": found}, COMMAND, [7])


if __name__ == "__main__":
    sys.exit(main())
