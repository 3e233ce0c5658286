"""`fedray new`: a project with an algorithm of your own, which starts from another configuration."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from fedray import experiment
from fedray.algorithms import ALGORITHMS
from fedray.config import shipped, source
from fedray.config.merging import Values
from fedray.core.settings import settings_class
from fedray.experiment import Config
from fedray.storage.files import write_whole
from fedray.training.tasks import TASKS

MODULE = "my_algorithm"  # of a project
ROUNDS, STEPS = 2, 400  # of a new project's run, and of its seed model
SMALL = {"kind": "conformer", "d_model": 16, "ffn": 32, "layers": 1, "kernel": 7}
FILES = ("README.md", "config.yaml", "my_algorithm.py", "run.py", "sweep.py", "test_my_algorithm.py")


def write(folder: Path, name: str) -> str:
    """Write the project; returns the commands to type next, in words.

    `name`: of a shipped configuration, or a file. ValueError: the folder is a file or not empty, or there is no such
    configuration of a run.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    path = shipped.locate("configs", name).resolve()
    if path.is_relative_to(home := shipped.folder("configs").resolve()):
        short = path.relative_to(home).with_suffix("").as_posix()
    else:  # a file of the user's own
        short = os.path.relpath(path, folder)
    if "algorithm" not in (values := source.read(path).given):
        raise ValueError(f"{short} has no algorithm: choose a configuration of a run, not one for `fedray pretrain`")
    words = described(folder, short, path, values)
    environment = Environment(
        loader=PackageLoader("fedray.cli"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    texts = {file: environment.get_template(f"{file}.jinja").render(words) for file in FILES}
    for file, text in texts.items():
        write_whole(folder / file, text)
    corpus = f" data.root=FOLDER  # of the corpus {words['corpus']}" if words["root"] else ""
    pytest = "python -m pytest" if find_spec("pytest") else "pip install pytest && python -m pytest"
    steps = [f"cd {quote(str(folder))}", f"python run.py{corpus}", pytest]
    if words["modules"]:
        found = quote(str(path.parent.resolve()))
        steps.insert(1, f"export PYTHONPATH={found}  # for {', '.join(words['modules'])}, which {short} imports")
    return f"{folder} has {', '.join(FILES)}. Next:\n" + "".join(f"  {step}\n" for step in steps)


def described(folder: Path, name: str, path: Path, values: Values) -> dict[str, Any]:
    """The values of the templates' variables."""
    config, _ = experiment.load(path, folder=path.parent)
    if MODULE in config.imports:
        raise ValueError(f"{path}: imports {MODULE}, as the project's own file is called: rename the file")
    parent = ALGORITHMS[config.algorithm.kind]
    metric, mode = TASKS[config.task.kind].best
    given = values["algorithm"] if isinstance(values["algorithm"], dict) else {}  # a word: the kind alone
    section = {key: value for key, value in given.items() if key not in ("kind", "pretrain")}
    rounds = min(ROUNDS, config.rounds)
    steps = config.algorithm.settings.pretrain.steps
    pretrain = dict(given.get("pretrain", {})) | {"steps": min(STEPS, steps)}
    small = f"  # Small: {name} trains its seed model for {steps:,} steps.\n" if steps > STEPS else ""
    title = re.sub(r"[^\w-]+", "-", folder.resolve().name).strip("-") or "mine"
    return {
        "name": title,
        "value": source.as_value(title),  # a folder may be named `true` or `1e5`
        "config": name,
        "extends": source.as_value(name),
        "modules": config.imports,
        "imports": dumped({"imports": [*config.imports, MODULE]}),
        "summary": shipped.summary(path),
        "parent": parent.__name__,
        "settings": settings_class(parent).__name__,
        "module": parent.__module__,
        "metric": metric,
        "mode": mode,
        "rounds": rounds,
        "full_rounds": config.rounds,
        "corpus": config.data.corpus,
        "root": config.data.corpus != "embedded" and config.data.root is None,
        "algorithm": _indented(section),
        "pretrain": small + _indented({"pretrain": pretrain}),
        "place": _absolute(values.get("data", {}).get("root")),
        "toy": dumped(toy(config, rounds)),
    }


def _absolute(root: object) -> str:
    """A relative path of data.root as an absolute one, to write into YAML; empty for any other value."""
    if not isinstance(root, str) or "${" in root or "://" in root or os.path.isabs(os.path.expanduser(root)):
        return ""
    return source.as_value(os.path.abspath(root))


def toy(config: Config, rounds: int) -> dict[str, Any]:
    """The sections with which a configuration's algorithm runs on the toy speech of the project's test."""
    columns = {"text_column": "text", "label_column": "label", "speaker_column": "speaker", "split_column": "split"}
    data: dict[str, Any] = {
        "corpus": "tsv",
        "options": {"train": ["manifest.tsv"], **columns, "path_column": "path", "seconds_column": None},
        "server": {"share": 0.3},
    }
    if config.data.clients.by in ("pooled", "server"):
        data["clients"] = {"by": config.data.clients.by}
    if config.data.labelled.given:
        data["labelled"] = {"utterances": 0.5}
    algorithm: dict[str, Any] = {"pretrain": {"steps": 10}}
    if config.model.kind == "whisper" and config.algorithm.kind == "fedlora":
        algorithm["lora"] = {"rank": 2}  # the other keys name layers of whisper
    task: dict[str, Any] = {"kind": config.task.kind}
    model: dict[str, Any] = {"kind": config.model.kind}
    if config.task.kind == "recognition":
        model = dict(SMALL)
        if config.task.settings.ctc_weight < 1:
            model["decoder_layers"] = 1
            task |= {"ctc_weight": 0.5, "decode": {"search": "attention", "beam": 2, "lm_weight": 0}}
    if config.task.kind == "translation":  # the translation of a sentence is its transcript
        data["options"]["translation_column"] = "text"
        task["decode"], model = {"beam": 2}, {**SMALL, "decoder_layers": 1}
    return {
        "name": "toy",
        "rounds": rounds,
        "data": data,
        "features": {"sample_rate": 8000, "bins": 40},
        "task": task,
        "model": model,
        "algorithm": algorithm,
        "cohort": {"fraction": 1.0},
        "engine": {"actors": 1, "lanes": 2},
        "evaluation": {"shards": 1, "personal_final": config.evaluation.personal_final},
    }


def dumped(values: dict[str, Any]) -> str:
    """YAML with the innermost sections on one line each."""
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True).rstrip()


def _indented(values: dict[str, Any]) -> str:
    return "\n".join(f"  {line}" for line in dumped(values).splitlines()) if values else ""
