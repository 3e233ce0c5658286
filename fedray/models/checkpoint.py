"""Checkpoints of transformers: a folder, or a name on Hugging Face's hub that its cache holds.

Only safetensors are read, and only model types whose code transformers has: nothing in a checkpoint is executed. The
machine that starts a run fetches a name of the hub once, before actors start; they find it in the cache
(`HF_HOME`), by the commit.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedray.core.texts import parsed, read_text
from fedray.storage.cache import file_hash

NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")  # OWNER/MODEL
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SMALL = ("*.json", "*.txt")  # configuration and tokens; no code
FETCHED = (*SMALL, "model*.safetensors", "tokenizer.model")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
INSTALL = 'needs transformers: pip install "fedray[encoders]"'


def is_on_hub(folder: str) -> bool:
    """Whether `model.folder` is a name on the hub: OWNER/MODEL, and no folder has this path."""
    return bool(NAME.fullmatch(folder)) and not Path(folder).is_dir()


def fetch(name: str, revision: str | None, patterns: Iterable[str] = FETCHED) -> str:
    """Fetch files of a model into the cache of Hugging Face, unless they are there; returns the commit.

    `HF_HUB_OFFLINE` and `HF_ENDPOINT` work. ValueError: they cannot be fetched.
    """
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError as error:
        raise ValueError(f"model.folder {name} {INSTALL}") from error
    asked = f"{name} at revision {revision}" if revision else name
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns))).name
    except GatedRepoError as error:
        raise ValueError(f"model.folder: {name} is gated: accept its terms on the hub, then `hf auth login`") from error
    except RevisionNotFoundError as error:
        raise ValueError(f"model.revision: the hub has no revision {revision} of {name}") from error
    except Exception as error:  # of its HTTP library, which versions of huggingface_hub change
        why = "the hub has no such model" if isinstance(error, RepositoryNotFoundError) else "the hub cannot be reached"
        raise ValueError(
            f"model.folder: there is no folder {Path(name).absolute()}, {why}, and the cache of Hugging Face "
            f"(HF_HOME) does not have {asked}: set model.folder to a folder, or `hf download {name}` where there is a "
            "network"
        ) from error


def located(folder: str, revision: str | None = None) -> Path:
    """The folder of a checkpoint on this machine. ValueError: a name of the hub that this machine's cache lacks."""
    if not is_on_hub(folder):
        return Path(folder).expanduser()
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(f"model.folder {folder} {INSTALL}") from error
    try:
        return Path(snapshot_download(folder, revision=revision, allow_patterns=[CONFIG], local_files_only=True))
    except OSError as error:
        raise ValueError(
            f"model.folder: the cache of Hugging Face on {socket.gethostname()} does not have {folder} at revision "
            f"{revision or 'main'}: set HF_HOME to a folder that all machines see, or fetch it there with `hf download`"
        ) from error


def check_weights(folder: Path) -> None:
    """Check that a folder has weights that can be read without executing anything. ValueError: it has none."""
    if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
        for path in sorted(folder.glob("model*.safetensors")):
            _check_whole(path)
        return
    if any((folder / name).is_file() for name in PICKLES):
        raise ValueError(
            f"model.folder {folder} has weights in a pickle alone, which may execute anything: write model.safetensors "
            "with transformers' `save_pretrained`, or set model.revision to one that has it"
        )
    raise ValueError(f"model.folder {folder} has no {WEIGHTS}: set it to a checkpoint that save_pretrained wrote")


FILES = (".json", ".txt", ".safetensors", ".model", ".yaml", ".ckpt")  # that a checkpoint's model depends on


def _check_whole(path: Path) -> None:
    """Check the header of a file of weights, which knows the file's length. ValueError: it is damaged, or cut short."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: is damaged or cut short ({error}): fetch the checkpoint again") from error


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint. ValueError: the file holds none, or it lacks one of the keys."""
    found = parsed(read_text(path), path)
    if not isinstance(found, dict) or (missing := [key for key in keys if key not in found]):
        lacks = f"has no {missing[0]}" if isinstance(found, dict) else "is not an object"
        raise ValueError(f"{path}: {lacks}: fetch the checkpoint again")
    return found


def hashes(model: object) -> dict[str, str]:
    """File -> hash, for the files of the checkpoint that a model's settings name; none without a checkpoint.

    SpeechBrain's folders hold hyperparams.yaml and .ckpt files.
    """
    given = getattr(model, "folder", None)
    if not isinstance(given, str):
        return {}
    folder = located(given, getattr(model, "revision", None))
    names = sorted(name for name in os.listdir(folder) if name.endswith(FILES))
    return {name: file_hash(folder / name) for name in names}
