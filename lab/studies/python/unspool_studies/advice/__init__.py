"""Which checkpoints pay: the dissertation's figures from its parameters and today's, and a job with
drawn failures beside what `unspool.advise` predicts for it."""
