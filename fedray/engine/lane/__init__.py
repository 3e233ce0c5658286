"""One lane on a client actor: its clients train, and their updates are checked and added up."""
