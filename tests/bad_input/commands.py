"""Wrong command lines and environment variables."""

from __future__ import annotations

from tests.bad_input.case import Case
from tests.bad_input.corpus import put

SWEEP = "import sys\nfrom fedray.sweep import nothing_of_this_name\n"


def wrong(name: str, command: str, *says: str) -> Case:
    return Case(f"command line: {name}", says, command=command)


def set_to(name: str, value: str, *says: str, command: str = "run config.yaml --out run") -> Case:
    return Case(f"environment: {name}={value}", (name, *says), command=command, environment={name: value})


CASES = (
    wrong("nothing", "", "usage: fedray", "required: COMMAND"),
    wrong("an unknown command", "rnu", "invalid choice: 'rnu'"),
    wrong("no configuration", "run", "CONFIG"),
    wrong("an unknown option", "run config.yaml --rounds=7", "unrecognized arguments: --rounds=7"),
    wrong("an override without =", "run config.yaml rounds", "'rounds' is not of the form key=value"),
    wrong("an override without a key", "run config.yaml =3", "'=3' is not of the form key=value"),
    wrong("an override with two dots", "run config.yaml a..b=3", "'a..b=3' is not of the form key=value"),
    wrong("an override that is not YAML", "run config.yaml 'cohort={size'", "'cohort={size'"),
    wrong(
        "an override of an index", "run config.yaml 'imports[0]=x'", "imports must be a list of texts, not {'0': 'x'}"
    ),
    wrong("an override through a number", "run config.yaml rounds.x=3", "rounds"),
    wrong("an override of nothing", "run config.yaml rounds=", "rounds"),
    wrong("an unknown key", "run config.yaml roonds=3", "command line: unknown key roonds; did you mean rounds?"),
    wrong("an override nested 2,000 deep", f"run config.yaml seed={'[' * 2000}{']' * 2000}", "seed"),
    wrong("--seed as a word", "run config.yaml --seed x", "invalid int value: 'x'"),
    wrong("an unknown name", "run fednst/embeded", "the nearest names are fednst/embedded"),
    wrong("an empty configuration", "run ''", "the name is empty"),
    wrong("--clients without --study", "data config.yaml --clients 3", "--clients needs a study"),
    wrong("--only without --show", "data config.yaml --only ann", "--only needs --show DIR"),
    wrong("--only of nobody", "data config.yaml --show x --only eve", "'eve' is neither a client nor an utterance"),
    wrong("--out with --show", "data config.yaml --show x --out y", "--show names its own folder"),
    wrong("--study and --show", "data config.yaml --study config.yaml --show x", "cannot be combined"),
    wrong("--utterances of 0", "data config.yaml --show x --utterances 0", "utterances"),
    wrong("--clients of -1", "data config.yaml --study config.yaml --clients -1", "clients"),
    wrong("--embeddings that are not there", "data config.yaml --study config.yaml --embeddings no.ckpt", "no.ckpt"),
    wrong("overrides without --estimate", "doctor rounds=3", "only with --estimate CONFIG"),
    wrong("doctor --estimate of nothing", "doctor --estimate nothing", "there is no file nothing"),
    wrong("a sweep that is not there", "sweep nothing", "there is no file nothing"),
    wrong("configs of a word that nothing has", "configs qqq", "no name or description contains 'qqq'"),
    wrong("new from nothing", "new mine --from nothing", "there is no file nothing"),
    wrong("new from a pre-training", "new mine --from fedstar/pretraining", "not one for `fedray pretrain`"),
    wrong("pretrain of a run", "pretrain config.yaml", "unknown key"),
    wrong("a run of a pre-training", "run fedstar/pretraining", "unknown key contrastive"),
    wrong("devices of nothing", "devices", "devices takes either CONFIG or --convert KIND FILE"),
    wrong("devices of a configuration that has none", "devices config.yaml", "the configuration has no devices"),
    wrong("devices --convert without --out", "devices --convert flash x", "--convert needs --out FILE.parquet"),
    wrong("devices --convert of an unknown kind", "devices --convert csv x --out x.parquet", "choose one of fedscale"),
    wrong("devices --convert of three files", "devices --convert table x y z --out x.parquet", "or both, not 3"),
    wrong("devices --convert into a CSV file", "devices --convert table x --out x.csv", "must end with .parquet"),
    wrong("devices --scale of 0", "devices --convert table x --scale 0 --out x.parquet", "--scale must be above 0"),
    wrong("devices --watts without --convert", "devices config.yaml --watts 3", "--watts needs --convert KIND FILE"),
    Case(
        "command line: a sweep that is not Python",
        "mine.py:1: is not Python",
        put("mine.py", "def\n"),
        "sweep mine.py",
    ),
    wrong(
        "two rounds of an algorithm that has one, before any corpus is made", "run fedmem/embedded rounds=2", "rounds"
    ),
    set_to("FEDRAY_CACHE", "/proc/x"),
    set_to("FEDRAY_CACHE", "config.yaml/x", "config.yaml"),
    set_to("FEDRAY_RUNS", "config.yaml", "config.yaml", command="run config.yaml"),
    set_to("FEDRAY_RUNS", "nfs5://x", "nfs5", command="run config.yaml"),
    set_to("FEDRAY_SHARED_CACHE", "nfs5://x", "nfs5"),
    set_to("FEDRAY_SHARED_CACHE", "config.yaml", "config.yaml"),
    set_to("RAY_ADDRESS", "nonsense"),
    set_to("RAY_ADDRESS", "http://x:y"),
)
