"""A proposal in words, to compare as a whole."""


def placed(proposal):
    """{"points": {place: grids}, "unified": groups of places, "reasons": {variable: reason}}."""
    solution = proposal.solution
    return {
        "points": {
            str(place): " ".join(map(str, point.grids)) for place, point in solution.points.items()
        },
        "unified": sorted(sorted(map(str, group)) for group in solution.unified),
        "reasons": dict(proposal.reasons),
    }
