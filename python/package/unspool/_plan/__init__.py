"""How a plan is made: links measured, schedules proposed, and each one forecast.

`unspool.planning` is what users import.
"""
