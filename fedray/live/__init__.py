"""The page of `fedray watch --web`: what it shows of run folders, and the server that shows it."""
