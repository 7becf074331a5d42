def metres(turns, circumference):
    return turns * circumference


def remaining(rope, turns, circumference):
    return metres(turns, circumference) - rope
