"""What secure aggregation costs, and when a round fails under it. No cryptography: a simulator needs only the numbers.

Bonawitz et al. Practical Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017. Each client masks its
update with its own key and with keys that it agrees on with its neighbours. The masks of neighbours cancel in the sum.
The neighbours hold shares of all keys, so that the server can open the sum even if clients have left.

Bell, Bonawitz, Gascon, Lepoint, Raykova. Secure Single-Server Aggregation with (Poly)Logarithmic Overhead. CCS 2020. A
client's neighbours are not the whole cohort: clients are on a ring in random order, each next to k neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

KEY = 32  # bytes of a public key, as in both papers
SHARE = 32  # bytes of a share of a key
# Seconds of one thread of an Intel Xeon E5-1650 v3, from the running times in Bonawitz et al. (500 and 1,000 clients of
# 100,000 numbers, 0 to 30 % of them lost before their upload). Tests check how far sums of these are from that paper's.
AGREE = 0.32e-3  # for each client and neighbour: agree on keys and share them
MASK = 13.7e-9  # for each number of a mask: generate and add it
ADD = 14.5e-9  # for each number of an upload: receive and add it
REBUILD = 3e-6  # for each share of a key, on the server
UNMASK = 26.9e-9  # for each number of the mask of a lost client and a neighbour, on the server
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Traffic:
    """Bytes of one client in one round, without the broadcast. A client that leaves early has sent the first parts."""

    keys: int  # sent: two public keys, and two encrypted shares for each neighbour
    vector: int  # sent: the masked update
    shares: int  # sent: a share of each neighbour's key, and of its own, to open the sum
    received: int  # the neighbours' public keys and encrypted shares

    @property
    def sent(self) -> int:
        """Bytes sent by a client that stays to the end."""
        return self.keys + self.vector + self.shares

    def factor(self, plain: int) -> float:
        """All bytes, sent and received, divided by those of the plain update."""
        return (self.sent + self.received) / plain


@dataclass(frozen=True)
class Seconds:
    """Computing time, without the network, of one client and of the server."""

    client: float
    server: float


@dataclass(frozen=True)
class SecureAggregation:
    """A round of `cohort` clients. The share `threshold` of the holders of a key's shares can open the key."""

    cohort: int
    neighbours: int = 100  # an odd number counts as the next even one
    threshold: float = 0.5

    @property
    def degree(self) -> int:
        """k: how many neighbours a client has; in a small cohort, all other clients."""
        return max(0, min(2 * math.ceil(self.neighbours / 2), self.cohort - 1))

    @property
    def needed(self) -> int:
        """How many of the `degree` + 1 holders of shares, the client itself and its neighbours, must answer."""
        return max(1, math.ceil(self.threshold * (self.degree + 1)))

    @property
    def fewest(self) -> int:
        """The fewest answers with which a sum can open: a key has `degree` + 1 shares, and a client holds as many."""
        return math.ceil(self.cohort * self.needed / (self.degree + 1))

    def traffic(self, size: int, bits: int) -> Traffic:
        """Bytes of a client whose update has `size` numbers modulo 2^`bits`.

        Bonawitz et al., section 7: for a complete graph of n clients this is 2 n KEY + (5 n - 4) SHARE + size bits / 8.
        Their factors compare with plain numbers of 16 bits; masked ones have 16 + log2(n) bits, so that the sum fits.
        """
        k = self.degree
        vector = math.ceil(size * bits / 8)
        return Traffic(2 * KEY + 2 * k * SHARE, vector, (k + 1) * SHARE, 2 * k * KEY + 2 * k * SHARE)

    def opens(self, answered: Mask, generator: np.random.Generator) -> bool:
        """Whether the server can open the sum: of each client's holders, `needed` must answer in the last step.

        `answered`: bool [cohort], the clients that stay to the end. The keys of clients that left are needed as well,
        since their masks are in the sum of the others. `generator` draws the order on the ring.
        """
        assert answered.shape == (self.cohort,), answered.shape
        if self.degree == self.cohort - 1:
            return int(answered.sum()) >= self.needed
        ring = answered[generator.permutation(self.cohort)]
        around = np.cumsum(np.concatenate([[0], ring, ring[: self.degree]]))
        holders = around[self.degree + 1 :] - around[: self.cohort]
        return int(holders.min()) >= self.needed

    def failure(self, dropout: float) -> float:
        """An upper bound on the probability that a round fails if each client leaves with probability `dropout`.

        It is exact if all clients are neighbours; otherwise it is the sum of the probabilities over clients.
        """
        one = float(scipy.stats.binom.cdf(self.needed - 1, self.degree + 1, 1 - dropout))
        return one if self.degree == self.cohort - 1 else min(1.0, self.cohort * one)

    def seconds(self, size: int, uploaded: int) -> Seconds:
        """Computing time for updates of `size` numbers, if `uploaded` clients of the cohort send theirs.

        The server opens the masks that each lost client shares with its neighbours, as in Bonawitz et al., where this
        is most of the server's work.
        """
        k, lost = self.degree, self.cohort - uploaded
        client = k * AGREE + (k + 1) * size * MASK
        rebuilt = uploaded * (k + 1) * REBUILD
        pairs = lost * k * uploaded / max(self.cohort - 1, 1)
        return Seconds(client, uploaded * size * (ADD + MASK) + rebuilt + pairs * size * UNMASK)
