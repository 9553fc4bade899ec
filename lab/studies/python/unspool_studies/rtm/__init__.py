"""Acoustic reverse time migration with its history in a spool: on the CPU, or on a GPU.

`unspool-rtm` runs it; the parts may be used on their own: `model` and `modelfile` for velocities,
`survey` for the geometry, `propagator` for the waves, `migration` for one shot, `job` for all.
"""
