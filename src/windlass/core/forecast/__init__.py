"""Forecasts of an execution's remaining time and cost. Pure: no I/O, no clock, no chance but a seed.

learning     observations → the distribution of a step's time or cost, and the run's difficulty
costs        the dollars, or the tokens and prices, of earlier runs → the cost of the steps that are left
knowledge    the records of a home → everything about a plan's steps: times, costs, retries, skips, items
simulation   the steps that are left, run many times by the rule of the scheduler → times to the end
calibration  earlier forecasts and their outcomes → how much wider or narrower the band has to be
outlook      an execution's state and that knowledge → its forecast
value        `Forecast`, as it is recorded and shown
scores       coverage, error and bias of recorded forecasts
"""
