"""Device time: which devices clients have, and a virtual clock that decides which client arrives when."""
