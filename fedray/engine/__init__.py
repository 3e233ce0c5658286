"""The engine runs rounds of any algorithm on Ray actors. It knows `fedray.core` and nothing about speech.

How an update is made, from the round down to the gradient step:

1. `driver.run_loop.RunLoop.round` runs one round, records it and commits it. It asks for the round's outcome:
2. `round.rounds.Rounds.train` draws the cohort, cuts it into lanes and puts the broadcast into Ray's object store.
   Each lane becomes a job:
3. `actors.pool.Pool.run` leases client actors to jobs, one job per actor, and reruns the job of a dead actor.
4. `actors.actor.ClientActor.run` runs a job in the actor's process, with what `jobs.job.Workplace` holds: program,
   assets, device, held updates.
5. `lane.training.TrainLane.run` feeds the lane's clients, hydrated by `LaneBook.clients`, to the algorithm:
6. `Algorithm.lane_update`, which by default calls `client_update` for one client after another.
7. The algorithm's training (`fedray.training`) takes the gradient steps.

And the way back: `LaneBook.accept` checks the update and writes the client's state.
`lane.aggregation.Aggregation.taker` decides where the update goes: into the lane's sum, or to `jobs.holding.Holder` if
the strategy must see the whole cohort first. The lane's result returns through the pool to `Rounds.train`, where
`Aggregation.aggregate` computes one mean over all lanes, in lane order. `Rounds.finish` passes the mean to
`Algorithm.server_update`.

With dedicated placement, step 2 goes through `round.dedicated.train_dedicated`: a job for each client, then a job for
each lane that folds the updates.

`fedray.open` takes the same way from step 2 on in one process: `actors.serial.SerialPool` stands in for the pool.

For each kind of strategy, one object in `lane.aggregation` takes, holds and aggregates the updates. The driver actor
(`driver.driver`) holds the run folder and runs the rounds. `driver.session` starts and watches it from the user's
process, and `driver.attach` finds it again.
"""
