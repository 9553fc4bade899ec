"""Studies with Unspool: a seismic migration, benchmarks, and comparisons of codecs.

Each folder is a study with a command of its own: `rtm` (`unspool-rtm`) migrates seismic data
through a spool, `bench` (`unspool-bench`) measures a machine, `codecs` (`unspool-codecs`) compares
codecs on arrays of yours, `timeline` (`unspool-timeline`) draws traces. `accumulated` is one of the
tables of `unspool-bench`. With this package installed `unspool rtm` is the same as `unspool-rtm`.
"""
