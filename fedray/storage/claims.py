"""Folders of reports, pre-trainings and the like: empty at first, and marked as fedray's own from then on."""

from __future__ import annotations

from fedray.storage.base import Storage

MARK = ".fedray"  # a file that names what the folder is for


def claim(folder: Storage, what: str) -> None:
    """Mark an empty folder as one for `what`; a folder with this mark stays as it is.

    ValueError: the folder holds something else, which might be overwritten.
    """
    names = folder.names()
    if MARK in names:
        found = folder.read(MARK).decode(errors="replace").strip()
        if found != what:
            raise ValueError(f"{folder.place} holds {found}, not {what}: choose another folder")
        return
    others = [name for name in names if name != ".lock"]
    if others:
        more = f" and {len(others) - 2:,} more" if len(others) > 2 else ""
        raise ValueError(
            f"{folder.place} is not empty, it holds {', '.join(others[:2])}{more}, which {what} might overwrite: "
            "choose a new or an empty folder"
        )
    folder.write(MARK, f"{what}\n".encode())
