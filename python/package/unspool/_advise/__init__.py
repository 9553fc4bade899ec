"""What `unspool.advise` is made of.

`model` is arithmetic, and `problem`, `choosing` and `line` are what it says of a job: nothing is
read or measured there. `asking` takes the arguments and measures what is not given, by `places`,
`trying`, `power` and `wear`. `outcome`, `text`, `figure`, `options` and `command` are for people.
The names for users are in `unspool.advising`.
"""
