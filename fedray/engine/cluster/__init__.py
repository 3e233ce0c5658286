"""Ray and its machines: what they have, what a run reserves, who may join."""
