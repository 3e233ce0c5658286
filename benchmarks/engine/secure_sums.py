"""Sums of whole numbers modulo 2^bits with Skellam noise: error, numbers that wrap around, what the rotation is worth,
and what secure aggregation adds in bytes and seconds.

    python -m benchmarks.engine.secure_sums        # about 2 minutes
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.study import table, write
from fedray.core.privacy.rotation import rotate, rotate_back
from fedray.core.privacy.secure_aggregation import SecureAggregation
from fedray.core.privacy.skellam import Encoding
from fedray.core.seeds import numpy_generator

SIZE = 44 * 4096  # numbers of an update, as many as the rotation likes
BOUND, NOISE, DEVIATIONS = 1.0, 1.0, 4.0
COHORT = 100
ALLOWED = 1.1  # times the Gaussian mechanism's error
UPDATES = {
    "independent, normal": lambda client: numpy_generator("update", client).standard_normal(SIZE),
    "the same of all clients, heavy tails": lambda client: numpy_generator("update").standard_t(2, SIZE),
    "the same of all clients, ten numbers": lambda client: np.repeat([1.0, 0.0], [10, SIZE - 10]),
}


def encoding(bits: int, cohort: int = COHORT) -> Encoding:
    return Encoding(SIZE, BOUND, NOISE, cohort, cohort, bits, DEVIATIONS)


def measured(plan: Encoding, update: Callable[[int], np.ndarray], rotated: bool) -> tuple[float, float, float]:
    """(error over that of the Gaussian mechanism, share of the numbers that wrap around, share of the sum that arrives)

    The last is the product of the decoded sum and the true one, over the square of the true one.
    """
    signs = plan.signs(numpy_generator("rotation"))
    total, exact, true = np.zeros(SIZE, np.uint32), np.zeros(SIZE, np.int64), np.zeros(SIZE)
    for client in range(plan.cohort):
        delta = update(client)
        delta = (delta * (BOUND / np.linalg.norm(delta))).astype(np.float32)
        true += delta
        if not rotated:  # what the rotation turns back into the update
            turned = rotate_back(delta.astype(np.float64).reshape(plan.shape)).ravel()
            delta = (turned * signs).astype(np.float32)
        sent = plan.encode(delta, signs, numpy_generator("rounding", client))
        total += sent
        exact += (sent.astype(np.int64) + plan.half) % (2 * plan.half) - plan.half
    noise = plan.noise_of(plan.cohort, numpy_generator("noise"))
    decoded = plan.decode(total + noise, signs).astype(np.float64)
    if not rotated:
        decoded = rotate((decoded * signs).reshape(plan.shape)).ravel()
    wrapped = float(np.mean((exact + noise < -plan.half) | (exact + noise >= plan.half)))
    error = float(np.sqrt(np.mean((decoded - true) ** 2))) / (NOISE * BOUND)
    return error, wrapped, float(decoded @ true / (true @ true))


def errors() -> list[dict[str, str]]:
    rows = []
    for name, update in UPDATES.items():
        for bits in (12, 16, 20):
            row = {"updates": name, "bits": str(bits)}
            for rotated in (True, False):
                error, wrapped, arrived = measured(encoding(bits), update, rotated)
                kind = "rotated" if rotated else "as they are"
                row |= {
                    f"{kind}: error": f"{error:.3f}",
                    f"{kind}: wrapped": f"{wrapped:.1e}",
                    f"{kind}: arrived": f"{arrived:.2f}",
                }
            rows.append(row)
            print(row, flush=True)
    return rows


def bits_needed(cohort: int, rotated: bool) -> int:
    """The least bits with an error of at most ALLOWED: without rotation, one number may hold all of n updates."""
    for bits in range(2, 33):
        try:
            plan = encoding(bits, cohort)
        except ValueError:
            continue
        if not rotated:
            scale = plan.scale
            while DEVIATIONS * NOISE * plan._rounded(scale) + cohort * scale * BOUND > plan.half and scale > 1e-6:
                scale *= 0.99
            if scale <= 1e-6 or plan._rounded(scale) / (scale * BOUND) > ALLOWED:
                continue
        elif plan.inflation > ALLOWED:
            continue
        return bits
    raise AssertionError("32 bits are enough")


def walsh_hadamard(values: np.ndarray) -> np.ndarray:
    """The transform of the papers, for a power of two: H (A B) = H A x H B, so that all additions are of long rows."""
    rows = 1 << ((len(values).bit_length() - 1) // 2)
    grid = values.reshape(rows, -1).copy()
    for _ in range(2):
        step = 1
        while step < len(grid):
            pairs = grid.reshape(len(grid) // (2 * step), 2, -1)
            added = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = added
            step *= 2
        grid = np.ascontiguousarray(grid.T)
    return grid.reshape(-1) / np.sqrt(len(values))


def milliseconds(work: Callable[[], object], times: int = 15) -> float:
    """The median processor time of a call."""
    spent = []
    for _ in range(times):
        since = time.process_time()
        work()
        spent.append(1000 * (time.process_time() - since))
    return float(np.median(spent))


def times(size: int) -> list[dict[str, str]]:
    plan = Encoding(size, BOUND, NOISE, COHORT, COHORT, 16, DEVIATIONS)
    signs = plan.signs(numpy_generator("rotation"))
    delta = np.full(size, BOUND / np.sqrt(size), np.float32)
    padded, power = np.ones(plan.shape, np.float32), np.ones(1 << (size - 1).bit_length())
    found = {
        "a client's update encoded": milliseconds(lambda: plan.encode(delta, signs, numpy_generator("r"))),
        "of which the rotation": milliseconds(lambda: rotate(padded)),
        "Walsh-Hadamard's in its place": milliseconds(lambda: walsh_hadamard(power)),
        "the noise of a round": milliseconds(lambda: plan.noise_of(COHORT, numpy_generator("n"))),
    }
    return [{"numbers": f"{size:,}", "": what, "ms": f"{took:.1f}"} for what, took in found.items()]


def protocols() -> list[dict[str, str]]:
    rows = []
    for cohort in (100, 1_000, 10_000):
        for neighbours in (100, cohort - 1):
            protocol = SecureAggregation(cohort, neighbours)
            if rows and rows[-1]["clients"] == f"{cohort:,}" and protocol.degree == int(rows[-1]["neighbours"]):
                continue
            seconds = protocol.seconds(SIZE, round(0.9 * cohort))
            rows.append(
                {
                    "clients": f"{cohort:,}",
                    "neighbours": str(protocol.degree),
                    "bytes over plain float32": f"{protocol.traffic(SIZE, 16).factor(4 * SIZE):.2f}",
                    "a round fails, 10 % lost": f"{protocol.failure(0.1):.0e}",
                    "30 % lost": f"{protocol.failure(0.3):.0e}",
                    "client, s": f"{seconds.client:.2f}",
                    "server, s, 10 % lost": f"{seconds.server:,.0f}",
                }
            )
    return rows


def main() -> None:
    needed = [
        {
            "clients": f"{cohort:,}",
            "bits, rotated": str(bits_needed(cohort, True)),
            "bits, as they are": str(bits_needed(cohort, False)),
        }
        for cohort in (100, 1_000, 10_000)
    ]
    found = {
        "errors": errors(),
        "bits": needed,
        "times": [*times(178_000), *times(1_000_000)],
        "protocols": protocols(),
    }
    page = f"""# Sums modulo 2^bits with Skellam noise

{COHORT} clients with updates of {SIZE:,} numbers and norm {BOUND:g}, noise multiplier {NOISE:g},
{DEVIATIONS:g} deviations. The error is that of the decoded sum, over the Gaussian mechanism's with the same multiplier.
`wrapped` is a share of the numbers, `arrived` the product of the decoded and the true sum over the square of the true
one: 1 is all of it. Scales are the same with and without the rotation.

{table(found["errors"])}

Bits at which rounding adds at most {ALLOWED - 1:.0%} to the noise and all sums fit: without a rotation one number may
hold all updates.

{table(found["bits"])}

Processor time of one core:

{table(found["times"])}

Secure aggregation by its formulas, 16 bits a number, threshold 0.5; seconds from the running times of Bonawitz et al.
(2017), without the network. Probabilities of failure are bounds.

{table(found["protocols"])}
"""
    write("secure_sums", page, found, "python -m benchmarks.engine.secure_sums", [0])


if __name__ == "__main__":
    main()
