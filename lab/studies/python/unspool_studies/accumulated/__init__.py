"""Accumulated compression measured: the approaches of its paper, in virtual time and on a GPU."""
