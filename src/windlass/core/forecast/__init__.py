"""Forecasts of an execution's remaining time and cost. Pure: no I/O, no clock, no chance but a seed.

learning     what earlier steps took → the distribution of a step's time or cost, and the run's difficulty
simulation   the steps that are left, run many times by the rule of the scheduler → times to the end
calibration  earlier forecasts and what came of them → how much wider or narrower the band has to be
outlook      an execution's state and the home's history → its forecast
words        a forecast as people read it
"""
