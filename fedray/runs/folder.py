"""A run folder, on a disk or on object storage: its lock, its tables of JSON lines, and its checkpoints."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from filelock import FileLock, Timeout

from fedray.core.texts import decoded, json_text, parsed
from fedray.runs.checkpoints import Checkpoints
from fedray.runs.client_states import ClientStore
from fedray.runs.progress import ClientRecord, Progress, read_clients, write_clients
from fedray.runs.tables import FileTables, PartedTables, Tables
from fedray.storage import temporary
from fedray.storage.files import faults, in_place_of
from fedray.storage.opening import open_storage

METRICS, FAILURES, LEFT_OUT = "metrics.jsonl", "failures.jsonl", "left_out.jsonl"  # tables
TRIPS = "trips.jsonl"  # a table of runs with `devices`
REPORTS = "reports.jsonl"  # a table of runs with `evaluation.client_reports`
TABLES, OPTIONAL = (METRICS, FAILURES, LEFT_OUT), (TRIPS, REPORTS)
# fedray's files in the folder of a run that has not begun: config.yaml, the first file of a run, follows run.json.
BEFORE = frozenset({".lock", "log.txt", "broken.tsv", "run.json"})

__all__ = ["ClientRecord", "Progress", "RunFolder", "read_clients", "write_clients"]


class RunFolder:
    """The folder of a run: a path or a URI. StorageError: the disk is full, or the store cannot be reached."""

    def __init__(self, place: str | Path) -> None:
        self.storage = open_storage(place)
        self.place = self.storage.place  # for messages
        self.root = self.storage.local  # None: on object storage
        self.checkpoints = Checkpoints(self.storage.child("checkpoints"))
        self.states = ClientStore(self.storage.child("states"))
        self._tables: Tables = PartedTables(self.storage) if self.root is None else FileTables(self.root)
        self._scratch: Path | None = None
        self._published: dict[Path, tuple[int, int]] = {}  # size and mtime of uploaded files

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; a second run in it is refused. The lock ends with its process.

        Object storage has no locks: there the driver's name, which is unique in a Ray cluster, guards the folder.
        """
        if self.root is None:
            yield
            return
        lock = FileLock(self.root / ".lock")
        try:
            with faults(self.root / ".lock"):
                lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"{self.place}: another run is using this folder: wait for it, end it, or choose another --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def check_is_run(self) -> None:
        """Check that the folder holds a run. ValueError: it holds none."""
        if not self.exists("config.yaml"):
            found = [name for name in self.storage.names() if re.fullmatch(r"run(-\d+)?", name)]  # of a trial
            inside = [self.storage.shown(name) for name in found if self.exists(f"{name}/config.yaml")]
            hint = f"; it is the folder of a trial, whose run is in {inside[-1]}: name that folder" if inside else ""
            raise ValueError(f"{self.place} is not a run folder: it has no config.yaml{hint}")

    def check_free(self, before: Collection[str] = BEFORE) -> None:
        """Check that the folder does not exist yet, or holds only the files `before`. ValueError otherwise."""
        if self.exists("config.yaml"):
            shown = self.place
            raise ValueError(
                f"{shown} holds a run already: continue with `fedray resume {quote(shown)}`, or choose another folder "
                "with --out (in Python: fedray.resume, out=)"
            )
        self.check_is_folder()
        found = [name for name in self.storage.names() if name not in before and not name.startswith(".probe-")]
        if not found:
            return
        more = f" and {len(found) - 2:,} more" if len(found) > 2 else ""
        remedy = "choose a new or an empty folder with --out"
        if "checkpoints" in found:
            resume = f"`fedray resume {quote(self.place)}`"
            remedy = f"put back the config.yaml of the run that lies there to continue with {resume}, or {remedy}"
        raise ValueError(f"{self.place} is not empty, it holds {', '.join(found[:2])}{more}: {remedy}")

    def check_is_folder(self) -> None:
        """Check that no file is in the way. ValueError names the file."""
        for path in (self.root, *self.root.parents) if self.root is not None else ():
            if path.exists() and not path.is_dir():
                raise ValueError(f"{path} is a file, not a folder: choose another folder with --out")

    def exists(self, name: str) -> bool:
        """Whether there is a file with this name."""
        return self.storage.exists(name)

    def read_text(self, name: str) -> str:
        if self.root is None and name.endswith(".jsonl"):
            return "".join(f"{line}\n" for line in self._tables.lines(name))
        return decoded(self.storage.read(name), self.storage.shown(name))

    def write_text(self, name: str, text: str) -> None:
        self.storage.write(name, text.encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read the JSON object in a file. ValueError names a file that holds none. FileNotFoundError: no such file."""
        values = parsed(self.read_text(name), shown := self.storage.shown(name))
        if not isinstance(values, dict):
            raise ValueError(f"{shown}: is not a JSON object, as fedray writes it: restore it")
        return values

    def write_json(self, name: str, value: Any) -> None:
        self.write_text(name, json_text(value, indent=2) + "\n")

    def write_table(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a tab-separated table with a header. None and missing columns are empty cells.

        Tabs and newlines in cells become spaces. Rows wait on the disk until all columns are known.
        """
        columns: dict[str, None] = {}
        with (
            faults(tempfile.gettempdir()),
            tempfile.TemporaryFile("w+", encoding="utf-8", prefix="fedray-") as waiting,
        ):
            for row in rows:
                columns |= dict.fromkeys(row)
                waiting.write(json.dumps({column: _cell(value) for column, value in row.items()}) + "\n")
            waiting.flush()

            def write(path: Path) -> None:
                waiting.seek(0)
                with path.open("w", encoding="utf-8", newline="") as file:
                    file.write("\t".join(columns) + "\n")
                    for line in waiting:
                        row = json.loads(line)
                        file.write("\t".join(row.get(column, "") for column in columns) + "\n")

            if columns:
                self.export(name, write)

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it exists."""
        self.storage.remove(name)

    def export(self, name: str, build: Callable[[Path], object]) -> None:
        """Replace `name` by the file or folder that `build(temporary_path)` makes.

        Nothing happens if it makes nothing. Files that only the old folder has stay: they may be the user's.
        """
        if self.root is not None:
            with in_place_of(self.root / name, keep=True) as made:
                build(made)
            return
        with tempfile.TemporaryDirectory(prefix="fedray-") as folder:
            made = Path(folder) / Path(name).name
            with faults(made):
                build(made)
            if made.is_file():
                self.storage.put({name: made})
            elif made.is_dir() and any(made.iterdir()):
                self.storage.upload(made, name)

    def scratch(self, name: str = "") -> Path:
        """A local folder whose files `publish(name)` uploads to `name`. On a disk it is the folder `name` itself."""
        if self.root is None and self._scratch is None:
            temporary.sweep()
            self._scratch = temporary.private() / f"folder-{uuid.uuid4().hex}"
            weakref.finalize(self, temporary.disown, self._scratch, temporary.own(self._scratch))
        folder = (self.root or self._scratch or Path()) / name
        with faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def publish(self, name: str = "") -> None:
        """Upload the files of `scratch(name)` that have changed. On a disk there is nothing to do."""
        if self._scratch is None:
            return
        changed = {}
        for path in (self._scratch / name).rglob("*"):
            status = path.stat()
            if path.is_file() and self._published.get(path) != (status.st_size, status.st_mtime_ns):
                changed[path] = (status.st_size, status.st_mtime_ns)
        self.storage.put({path.relative_to(self._scratch).as_posix(): path for path in changed})
        self._published |= changed

    # Tables: one JSON object a line, each with its round. In a bucket they are in parts while the run is active.

    def each(self, name: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, one after the other; none if there is no table."""
        lines = self._tables.lines(name)
        for number in itertools.count(1):
            try:  # around the read only
                line = next(lines, None)
            except FileNotFoundError:
                return
            if line is None:  # `lines` leaves out a last line that a kill cut short
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                shown = self.storage.shown(name)
                raise ValueError(
                    f"{shown}:{number}: is not a row of JSON ({error}): remove the line to continue without it"
                ) from error
            yield row

    def rows(self, name: str) -> list[dict[str, Any]]:
        return list(self.each(name))

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._tables.append(name, "".join(map(_line, rows)))

    def rewrite(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Replace a table. The rows may come from `each` of the same table."""
        self._tables.rewrite(name, map(_line, rows))

    def tables(self) -> list[str]:
        """The names of the run's tables."""
        return [*TABLES, *(name for name in OPTIONAL if self.exists(name))]

    def cut(self, name: str, round: int) -> None:
        """Remove the rows of rounds after `round`."""
        self.rewrite(name, (row for row in self.each(name) if row["round"] <= round))

    def settle(self) -> None:
        """Make each table a plain file."""
        self._tables.settle()

    # Checkpoints, by the number of rounds done.

    def save(self, progress: Progress) -> None:
        """Save a checkpoint. It survives a power loss, and so do the rows of its rounds."""
        self.storage.sync((*TABLES, *OPTIONAL))
        self.checkpoints.save(progress)

    def saved_rounds(self) -> list[int]:
        return self.checkpoints.saved_rounds()

    def load(self, round: int) -> Progress:
        """The checkpoint of a round. ValueError: a file is cut short or changed; the message names it."""
        return self.checkpoints.load(round)

    def prune(self, keep: Collection[int]) -> None:
        """Remove all checkpoints but those of these rounds."""
        self.checkpoints.prune(keep)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _cell(value: Any) -> str:
    return "" if value is None else re.sub(r"[\t\r\n]+", " ", str(value))
