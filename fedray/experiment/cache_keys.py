"""What a cached theta_0 or client state depends on: configuration keys, data, files that the model reads, code."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import cloudpickle

from fedray.config.merging import dotted
from fedray.config.schema import pick, plain
from fedray.core import environment
from fedray.core.algorithm import Algorithm
from fedray.data.federation.speech_data import SpeechData
from fedray.experiment.config import Config
from fedray.models.checkpoint import located
from fedray.storage.cache import cache_root, file_hash, key


def caches(config: Config, algorithm: Algorithm, data: SpeechData, gpu: bool) -> tuple[Path | None, Path | None]:
    """The cache file of theta_0 and the cache folder of the first client states; None for what is never cached."""
    if not algorithm.init_depends:
        return None, None
    values = plain(config)
    init: dict[str, Any] = {
        "code": code_version(config.imports),
        # Without server data the tokens come from the clients' transcripts.
        "data": data.fingerprint("server" if data.server() is not None else "clients"),
        "start": weights_to_start_from(config.model.settings),
        "files": model_files(config.model.settings),
        "gpu": gpu,
        "versions": environment.versions(environment.LEARNING),
        "processor": environment.processor(),
        "classes": getattr(algorithm.task, "classes", None),
    }
    if personal := getattr(getattr(algorithm, "seed_task", None), "personal", ()):  # theta_0 has another order
        init["personal"] = personal
    init |= pick(values, algorithm.init_depends)
    if not shares_init(algorithm):
        init["algorithm"] = source_of(type(algorithm))
    init_cache = cache_root() / "init" / f"{key(init)}.pt"
    if not (algorithm.prepare_depends and algorithm.overrides("client_prepare")):
        return init_cache, None
    prepared = {"init": init, "clients": data.fingerprint("clients"), "algorithm": source_of(type(algorithm))}
    prepared |= pick(values, algorithm.prepare_depends)
    return init_cache, cache_root() / "prepared" / key(prepared)


def weights_to_start_from(model: object) -> list[tuple[str, int, int]]:
    """(name, bytes, modification time in ns) of the files that `model.init` and `model.folder` name.

    Includes the token files next to a file of weights, which `task.tokens=pretrained` reads.
    """
    given = [Path(model.init)] if getattr(model, "init", None) is not None else []  # type: ignore[attr-defined]
    if isinstance(folder := getattr(model, "folder", None), str):
        given.append(located(folder, getattr(model, "revision", None)))
    files = []
    for path in given:
        files += sorted(path.iterdir()) if path.is_dir() else [path, *sorted(path.parent.glob("**/tok*"))]
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def model_files(model: object) -> dict[str, str]:
    """Key -> a hash of the file that it names, for the keys of a user's model that name one, such as a HyperPyYAML.

    `model`: the model's settings. `init` and `folder` are left out: see `weights_to_start_from`.
    """
    values = {f"model.{key}": value for key, value in dotted(plain(model)).items() if key not in ("init", "folder")}
    named = {key: value for key, value in values.items() if isinstance(value, str) and os.path.isfile(value)}
    return {key: file_hash(Path(file)) for key, file in named.items()}


def shares_init(algorithm: Algorithm) -> bool:
    """Whether theta_0 is the one that `init_name` stands for: a subclass with its own `init` makes a different one."""
    classes = [cls for cls in type(algorithm).__mro__ if issubclass(cls, Algorithm)]
    named = next((cls for cls in classes if vars(cls).get("init_name") is not None), None)
    return named is not None and type(algorithm).init is named.init


def code_version(imports: Iterable[str]) -> str:
    """A hash of the code that a cached result depends on: fedray's, with its word lists, and the user's modules."""
    return environment.code(environment.CACHED, (source_of(sys.modules[module]) for module in imports))


def source_of(thing: type | ModuleType) -> str:
    """A hash of the source of a module, or of the module that defines a class.

    If there is no file (a console), it is a hash of the class's bytecode.
    """
    module = thing if isinstance(thing, ModuleType) else sys.modules[thing.__module__]
    path = Path(getattr(module, "__file__", None) or "")
    source = path.read_bytes() if path.is_file() else cloudpickle.dumps(thing)
    return hashlib.blake2b(source, digest_size=8).hexdigest()
