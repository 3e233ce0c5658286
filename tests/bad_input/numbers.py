"""Numbers that no run can use, for every section of a configuration, given on the command line."""

from __future__ import annotations

from tests.bad_input.case import DRY, Case

WRONG = """
rounds=0
rounds=-1
seed=.nan
cohort.size=0
cohort.size=-3
cohort.size=.inf
cohort={size: null, fraction: 0}
cohort={size: null, fraction: 1.5}
cohort={size: null, fraction: .nan}
cohort.availability=0
cohort.dropout=7
cohort.dropout=.nan
data.seed=abc
data.dev_share=2
data.dev_share=-.5
data.test_share=.inf
data.server.share=2
data.server.share=.nan
data.server.hours=-1
data.server.utterances=0
data.clients.count=0
data.clients.alpha=0
data.clients.alpha=.nan
data.clients.alpha=.inf
data.clients.spread=-1
data.clients.labels=-1
data.clients.labels_spread=-1
data.clients.speakers_per_client=0
data.clients.min_utterances=-1
data.clients.max_utterances=0
data.labelled.utterances=2
data.labelled.clients=-1
data.labelled.at_least=-1
data.corruption.snr_db=.nan
data.corruption.label_errors=3
features.bins=0
features.sample_rate=0
features.sample_rate=1000000000
features.window_ms=0.001
features.hop_ms=0.001
features.hop_ms=.inf
task.vocabulary=0
task.ctc_weight=2
task.decode.beam=0
task.decode.prune=.nan
task.decode.lm_weight=.inf
task.decode.lm_weight=-1
task.decode.max_tokens_per_frame=0
task.decode.ctc_weight=7
model.d_model=0
model.d_model=-8
model.layers=0
model.heads=0
model.heads=-1
model.ffn=0
model.kernel=-3
model.dropout=7
model.dropout=1
model.dropout=.nan
model.decoder_layers=-1
algorithm.client.lr=.inf
algorithm.client.lr=.nan
algorithm.client.lr=-1
algorithm.client.batch=0
algorithm.client.epochs=0
algorithm.client.clip=0
algorithm.client.clip=.nan
algorithm.client.l2=-1
algorithm.client.l2=.inf
algorithm.pretrain.steps=-1
algorithm.pretrain.lr=.inf
algorithm.pretrain.batch=0
algorithm.pretrain.warmup=-1
strategy={kind: by_loss, temperature: 0}
strategy={kind: by_loss, temperature: .nan}
strategy={kind: trimmed_mean, trim: 0.5}
strategy={kind: krum, byzantine: 0.9}
strategy={kind: krum, select: 0}
strategy.clip_norm=0
strategy.clip_norm=.inf
server_optimizer={kind: adam, lr: .inf}
server_optimizer={kind: adam, beta1: 1}
server_optimizer={kind: adam, beta2: 2}
server_optimizer={kind: adam, tau: 0}
server_optimizer={kind: momentum, beta: -1}
server_optimizer.lr=-1
privacy={kind: gaussian, noise: -1, delta: 1e-6}
privacy={kind: gaussian, noise: 1, epsilon: 8, delta: 1e-6}
privacy={kind: gaussian, noise: 1, delta: 1}
privacy={kind: gaussian, epsilon: 0, delta: 1e-6}
privacy={kind: gaussian, noise: 1, delta: 1e-6, clip: {norm: 0}}
privacy={kind: gaussian, noise: 1, delta: 1e-6, clip: {kind: adaptive, quantile: 0}}
privacy={kind: gaussian, noise: 1, delta: 1e-6, as_if: {cohort: 9, population: 3}}
privacy={kind: correlated, noise: 1, delta: 1e-6, bands: 0}
privacy={kind: skellam, noise: 1, delta: 1e-6, bits: 40}
privacy={kind: local, noise: 1, delta: 1e-6, clip: {kind: adaptive}}
cohort={size: 5, sampling: poisson, limit: 0}
cohort={size: 5, sampling: cyclic, availability: 0.5}
engine.lanes=0
engine.lanes=many
engine.actors=0
engine.actors=.inf
engine.cpus_per_client=-1
engine.cpus_per_client=.nan
engine.gpus_per_client=.inf
engine.failures_allowed=2
engine.failures_allowed=.nan
engine.replacements=-1
engine.hang_warning_s=0
engine.hang_warning_s=.inf
engine.checkpoint_every=0
engine.keep=0
engine.hold_gb=-1
engine.hold_gb=.nan
evaluation.every=0
evaluation.shards=0
evaluation.shards=many
algorithm.client.micro_batch=0
evaluation.patience=0
evaluation.personal_every=-1
evaluation.personal_utterances=0
"""


def _case(override: str) -> Case:
    key = override.partition("=")[0]
    says = ("command line: ", key.rpartition(".")[2] if "{" not in override else key)
    return Case(f"number: {override}", says, command=f"{DRY} '{override}'")


CASES = tuple(_case(override) for override in WRONG.split("\n") if override)
