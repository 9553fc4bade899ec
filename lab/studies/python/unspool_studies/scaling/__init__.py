"""More GPUs than are here: the core of a spool for each GPU of a node, in one virtual time, over
links that the GPUs share.
"""
