"""Configuration files that are wrong in their form, their keys or the types of their values."""

from __future__ import annotations

from tests.bad_input.case import DRY, RUN, Case
from tests.bad_input.corpus import CONFIG, append, both, config_with, put


def line(name: str, words: str, *says: str) -> Case:
    """The case of a configuration that ends with a wrong line."""
    place = f"config.yaml:{config_with(words)[1]}: "
    return Case(name, tuple(place if piece is LAST else piece for piece in says), append(words), DRY)


PRIVATE = "{kind: gaussian, noise: 1, delta: 1e-6}"
LAST = "the place of the last line"

CASES = (
    Case("configuration: the file is not there", "no configuration has this name", command="run nothing.yaml"),
    Case("configuration: a folder", "is a folder", lambda folder: (folder / "configs").mkdir(), "run configs"),
    Case("configuration: empty file", "cohort", put("config.yaml", ""), DRY),
    Case("configuration: a list", "a configuration is a mapping", put("config.yaml", "- a\n"), DRY),
    Case("configuration: a word", "a configuration is a mapping", put("config.yaml", "fednst\n"), DRY),
    Case("configuration: not YAML", ("config.yaml:", "is not valid YAML"), put("config.yaml", "name: [\n"), DRY),
    Case(
        "configuration: Latin-1", ("config.yaml", "is not UTF-8"), put("config.yaml", CONFIG.encode() + b"# \xe9"), DRY
    ),
    Case("configuration: UTF-16", ("config.yaml", "UTF-16"), put("config.yaml", CONFIG.encode("utf-16")), DRY),
    Case("configuration: bytes of a picture", "config.yaml", put("config.yaml", b"\x89PNG\r\n\x1a\n\0\0\0"), DRY),
    Case(
        "configuration: nested 2,000 deep",
        ("config.yaml", "nested too deep"),
        put("config.yaml", CONFIG + "x: " + "[" * 2000 + "]" * 2000 + "\n"),
        DRY,
    ),
    Case("configuration: a key twice", "duplicate key name", put("config.yaml", CONFIG + "name: other\n"), DRY),
    line(
        "configuration: aliases that unfold to billions",
        "\n".join(
            ["x:", "  a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
            + [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
        ),
        "config.yaml",
        "alias",
    ),
    line("configuration: an alias of itself", "x: &x [*x]", "config.yaml", "alias"),
    line(
        "configuration: a tag of Python", "x: !!python/object/apply:os.system [ls]", "config.yaml", "is not valid YAML"
    ),
    line("configuration: keys that are numbers", "1: 2", LAST, "unknown key 1"),
    line("configuration: keys that are null", "? \n: 2", "config.yaml"),
    line("configuration: keys that are lists", "[a, b]: 2", "config.yaml"),
    line("configuration: unknown key", "coohrt: {size: 2}", LAST, "unknown key coohrt; did you mean cohort?"),
    line("configuration: unknown key of a section", "engine: {lane: 3}", LAST, "did you mean engine.lanes?"),
    line(
        "configuration: a client that cannot train side by side with others",
        "algorithm: {kind: fedavg, client: {micro_batch: 2}}\nengine: {vectorise: 8}",
        "which algorithm.client's micro_batch, recompute, precision and compile do not allow",
    ),
    line(
        "configuration: an unknown choice",
        "engine: {mixed_nodes: some}",
        LAST,
        "mixed_nodes must be one of none, hardware, all, not 'some'",
    ),
    line("configuration: kernels that are neither", "kernels: on", LAST, "kernels is auto or off, not True"),
    line("configuration: unknown kind", "strategy: by_exampels", LAST, "did you mean by_examples?"),
    line("configuration: a kind that is a number", "strategy: {kind: 3}", LAST, "strategy.kind: 3 is not known"),
    line("configuration: a section that is a number", "engine: 8", LAST, "engine must be a section of keys"),
    line("configuration: a section that is a list", "evaluation: [1]", LAST, "evaluation must be a section of keys"),
    line("configuration: a word for a number", "rounds: many", LAST, "rounds must be a whole number, not 'many'"),
    line("configuration: half a round", "rounds: 2.5", LAST, "rounds must be a whole number, not 2.5"),
    line("configuration: null for a number", "rounds: null", LAST, "rounds must be a whole number, not null"),
    line("configuration: a list for a number", "seed: [1, 2]", LAST, "seed must be a whole number, not [1, 2]"),
    line("configuration: yes for a word", "name: yes", LAST, "write 'yes', 'no', 'on' in quotes"),
    line("configuration: a seed beyond 64 bits", "seed: 100000000000000000000", LAST, "seed", "64 bits"),
    line("configuration: ${name} of nothing", "seed: ${sed}", "seed", "sed"),
    line("configuration: ${name} of itself", "seed: ${seed}", "seed"),
    line("configuration: ${ without an end", "name: '${seed'", "config.yaml", "'${seed'"),
    line("configuration: a resolver of OmegaConf", "name: ${oc.env:HOME_NOT}", "name"),
    line(
        "configuration: extends a file that is not there",
        "extends: base.yaml",
        "base.yaml: cannot be read",
        "config.yaml extends it",
    ),
    line("configuration: extends itself", "extends: config.yaml", "config.yaml", "extends itself"),
    line("configuration: extends a list", "extends: [a, b]", LAST, "extends"),
    line("configuration: extends an unknown name", "extends: fednst/embeded", LAST, "fednst/embedded"),
    line("imports: a number", "imports: [3]", LAST, "3 is not a module name"),
    line("imports: a relative name", "imports: [.x]", LAST, "'.x' is not a module name"),
    line("imports: a word", "imports: .x", LAST, "must be a list of texts, not '.x'"),
    line("imports: an empty name", "imports: ['']", LAST, "'' is not a module name"),
    line("imports: a path", "imports: [a/b.py]", LAST, "'a/b.py' is not a module name"),
    line("imports: a module that is not there", "imports: [no_such_module]", LAST, "no_such_module cannot be imported"),
    Case(
        "imports: a module with a mistake",
        ("imports: mine", "mine.py, line 1: ZeroDivisionError"),
        both(append("imports: [mine]"), put("mine.py", "1 / 0\n")),
        DRY,
    ),
    Case(
        "imports: a module that is not Python",
        ("imports: wrong", "wrong.py, line 1: SyntaxError"),
        both(append("imports: [wrong]"), put("wrong.py", "def\n")),
        DRY,
    ),
    line("name: a path upwards", "name: ../../evil", LAST, "name", "'../../evil'"),
    line("name: an absolute path", "name: /srv/evil", LAST, "name", "'/srv/evil'"),
    line("name: markup of rich with a slash", "name: 'x[/y]'", LAST, "name", "'x[/y]'"),
    line("name: empty", "name: ''", LAST, "name"),
    line("name: a dot", "name: .", LAST, "name"),
    line("name: control characters", 'name: "a\\e[31mb\\n"', LAST, "name", r"'a\x1b[31mb\n'"),
    line("name: 300 characters", f"name: {'x' * 300}", LAST, "name"),
    line("data.options: a word", "data: {corpus: tsv, options: abc}", "data.options", "'abc'"),
    line(
        "data.options: a file for a list",
        "data: {corpus: tsv, options: {clients: clients.tsv}}",
        LAST,
        "must be a list of texts",
    ),
    line(
        "data.options: numbers for files", "data: {corpus: nemo, options: {train: [[1]]}}", LAST, "data.options.train"
    ),
    line("data.corpus: unknown", "data: {corpus: tvs}", LAST, "data.corpus: 'tvs' is not known"),
    line("data.root: not there", "data: {corpus: tsv, root: nowhere}", LAST, "there is no folder"),
    line("data.root: a file", "data: {corpus: tsv, root: config.yaml}", LAST, "there is no folder"),
    line("data.root: a zero byte", 'data: {corpus: tsv, root: "a\\0b"}', LAST, "data.root"),
    line("model.init: not there", "model: {kind: conformer, init: w.pt}", LAST, "model.init: there is no file"),
    Case(
        "cohort larger than the population",
        "cohort.size is 1000, but the population has only 60 clients",
        command=f"{DRY} data.corpus=embedded cohort.size=1000",
    ),
    Case(
        "algorithm.personal: parameters that are not there",
        ("algorithm.personal: 'ctcs.*' matches no trained parameter", "near it: ctc_head.*"),
        command="run config.yaml --out run 'algorithm.personal=[\"ctcs.*\"]' evaluation.personal_final=true",
    ),
    Case(
        "algorithm.personal: all parameters",
        "'*' matches every trained parameter, and nothing would travel",
        command="run config.yaml --out run 'algorithm.personal=[\"*\"]' evaluation.personal_final=true",
    ),
    Case(
        "algorithm.personal: without personal scores",
        "algorithm.personal is judged by personal scores alone: set evaluation.personal_final=true",
        command=f"{DRY} 'algorithm.personal=[\"ctc.*\"]'",
    ),
    line("upload: unknown kind", "upload: zip", LAST, "known kinds: none, half, int8, int4, topk"),
    line("upload: a key of another kind", "upload: {kind: int8, share: 0.1}", LAST, "unknown key upload.share"),
    line("upload: a share of nothing", "upload: {kind: topk, share: 0}", LAST, "upload.share must be above 0"),
    line("upload: unknown values", "upload: {kind: topk, values: int2}", LAST, "values must be one of float32, half"),
    line("download: top-k", "download: topk", LAST, "known kinds: none, half, int8, int4"),
    Case(
        "upload: private updates",
        "privacy clips an update before `upload` encodes it",
        command=f"{DRY} 'privacy={PRIVATE}' strategy.kind=uniform cohort.sampling=poisson upload=int8",
    ),
    Case(
        "upload: the median of sparse updates",
        "the model would not move",
        command=f"{DRY} upload=topk strategy.kind=median",
    ),
    line("privacy: without delta", "privacy: {kind: gaussian, noise: 1}", "privacy.delta is missing"),
    Case(
        "privacy: clients with different weights",
        "one client could move the result by more than its share",
        command=f"{DRY} 'privacy={PRIVATE}' strategy.kind=by_examples",
    ),
    Case(
        "privacy: two bounds of an update",
        "leave out strategy.clip_norm",
        command=f"{DRY} 'privacy={PRIVATE}' 'strategy={{kind: uniform, clip_norm: 1}}'",
    ),
    Case(
        "privacy: cohorts without an account",
        "the privacy account needs cohort.sampling poisson or uniform",
        command=f"{DRY} 'privacy={PRIVATE}' strategy.kind=uniform cohort.sampling=weighted",
    ),
    line("audit: unknown kind", "audit: spies", LAST, "known kinds: none, canaries, speakers, directions, updates"),
    line("audit: too few candidates", "audit: {kind: canaries, clients: 3}", LAST, "audit.clients must be at least 4"),
    Case(
        "audit: directions without a bound",
        "directions are scaled to the bound of privacy.clip: set privacy",
        command=f"{DRY} audit.kind=directions",
    ),
    Case(
        "audit: canaries whose words nobody learns",
        "trains on its own labels, never on a canary's transcripts",
        command=f"{DRY} algorithm.kind=fednst audit.kind=canaries",
    ),
    Case(
        "audit: a candidate among others",
        "a candidate is a client of its own",
        command=f"{DRY} audit.kind=speakers 'data.clients={{by: iid, count: 6}}'",
    ),
    line(
        "audit: an attribute of no table",
        "audit: {kind: updates, attributes: [age]}",
        LAST,
        "'age' is a column of a table of speakers: name the table as audit.file, or choose label",
    ),
    line("audit: an attribute twice", "audit: {kind: updates, attributes: [label, label]}", LAST, "different ones"),
    line("audit: sums of nothing", "audit: {kind: updates, sums: [0]}", LAST, "audit.sums must be at least 1, not 0"),
    Case(
        "audit: sums under a strategy that sees updates",
        "audit.sums=[1, 2] hides single updates, which strategy.kind needs to see",
        command=f"{DRY} 'audit={{kind: updates, sums: [1, 2]}}' strategy.kind=median",
    ),
    Case(
        "audit: updates of attackers",
        "observes honest clients: remove audit, or remove attack",
        command=f"{DRY} audit.kind=updates attack.kind=sign_flip",
    ),
    Case(
        "audit: updates, and a table that is not there",
        ("audit.file", "there is no file"),
        command=f"{RUN} 'audit={{kind: updates, file: speakers.tsv}}'",
    ),
    Case(
        "audit: more clients than take part",
        "audit.clients (4) are attacked, and 1 of 2 clients take part",
        command=f"{RUN} 'audit={{kind: updates, clients: 4, auxiliary: 0.5}}'",
    ),
    line("audit: inversion in no step", "audit: {kind: inversion, steps: 0}", LAST, "audit.steps must be at least 1"),
    Case(
        "audit: an inversion of labels that clients make",
        "algorithm.kind fednst makes labels",
        command=f"{DRY} algorithm.kind=fednst audit.kind=inversion",
    ),
    Case(
        "audit: more clients to invert than there are",
        "the federation has 2 clients, fewer than audit.clients (20)",
        command=f"{RUN} audit.kind=inversion",
    ),
    line("attack: unknown kind", "attack: zombies", LAST, "known kinds: none, sign_flip"),
    line(
        "attack: rounds that are no interval", "attack: {kind: noise, rounds: [3, 2]}", LAST, "the first and the last"
    ),
    line("attack: a backdoor without a target", "attack: {kind: backdoor}", LAST, "attack.target is missing"),
    Case(
        "attack: a backdoor that no token can write",
        "attack.target 'Ω': ",
        command=f"{RUN} 'attack={{kind: backdoor, target: Ω, share: 1.0}}'",
    ),
    Case(
        "attack: a backdoor that nothing is scored on",
        "attack.kind=backdoor is scored on test or dev, and there is neither",
        command=f"{RUN} 'attack={{kind: backdoor, target: one, share: 1.0}}'",
    ),
    Case(
        "attack: fewer than one attacker",
        "attack.share=0.1 of 2 clients is no client",
        command=f"{RUN} attack.kind=sign_flip",
    ),
    Case(
        "attack: labels that nobody trains on",
        "trains on labels that it makes itself",
        command=f"{DRY} algorithm.kind=fednst attack.kind=label_flips",
    ),
    Case(
        "attack: colluders on actors of their own",
        "attackers that collude are trained by one actor",
        command=f"{DRY} attack.kind=alie engine.placement=dedicated",
    ),
    Case(
        "groups: a column of no table",
        "name the table as data.groups.file",
        command=f"{DRY} data.groups.column=gender",
    ),
    Case(
        "groups: the table is not there",
        ("data.groups.file", "there is no file"),
        command=f"{DRY} 'data.groups={{file: none.tsv, column: gender}}'",
    ),
    Case(
        "groups: the table has no such column",
        "no column 'gender': set data.groups.column to one of path, speaker, text, seconds",
        command=f"{RUN} 'data.groups={{file: clients.tsv, column: gender}}'",
    ),
    Case(
        "groups: a speaker in two",
        ("groups.tsv", "speaker ann is in the groups f and m: a group is an attribute of a speaker"),
        put("groups.tsv", "speaker\tgender\nann\tf\nann\tm\n"),
        f"{RUN} 'data.groups={{file: groups.tsv, column: gender}}'",
    ),
    Case(
        "strategy: agnostic without groups",
        "weighs groups of clients, and there are none: set data.groups",
        command=f"{DRY} strategy.kind=agnostic",
    ),
    Case(
        "strategy: trust in a server that trains nothing",
        "compares clients with what the server trains, and algorithm.kind ditto trains",
        command=f"{DRY} strategy.kind=fltrust algorithm.kind=ditto evaluation.personal_final=true",
    ),
)
