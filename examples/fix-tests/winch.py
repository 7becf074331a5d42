"""Length of the rope that is wound up."""


def metres(turns, circumference=0.5):
    return turns / circumference
