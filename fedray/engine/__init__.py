"""The engine runs rounds of any algorithm on Ray actors. It knows `fedray.core` and nothing of speech.

The way of an update, from the round to the gradient step:

1. `run_loop.RunLoop.round` runs one round, records it and commits it. It asks for the round's outcome:
2. `rounds.Rounds.train` draws the cohort, cuts it into lanes and puts the broadcast into Ray's object store. Each lane
   becomes a job:
3. `pool.Pool.run` leases client actors to jobs, one job an actor, and runs the jobs of a dead actor again.
4. `actors.ClientActor.run` runs a job in the actor's process, on what `jobs.Workplace` holds: program, assets, device,
   held updates.
5. `lane_training.TrainLane.run` feeds the lane's clients, hydrated by `LaneBook.clients`, to the algorithm:
6. `Algorithm.lane_update`, by default `client_update` of one client after the other.
7. The algorithm's training (`fedray.training`) takes the gradient steps.

And back: `LaneBook.accept` checks the update and writes the client's state. The update goes where
`aggregation.Aggregation.taker` says: into the lane's sum, or to `holding.Holder` where the strategy must see the whole
cohort first. The lane's result returns through the pool to `Rounds.train`, where `Aggregation.aggregate` makes one mean
of all lanes, in lane order. `Rounds.finish` hands the mean to `Algorithm.server_update`.

With dedicated placement, step 2 goes through `dedicated.train_dedicated`: a job for each client, then a job for each
lane that folds the updates.

One object for each kind of strategy (`aggregation`) knows how updates of that kind are taken, held and aggregated. The
driver actor (`driver`) holds the run folder and runs the rounds; `session` starts and watches it from the user's
process, `attach` finds it again.
"""
