"""How figures are shown: one table for people, one JSON document for machines."""

import dataclasses


def _number(value, unit):
    if value is None:
        return ""
    if unit in ("op/s", "bad"):
        return f"{value:,.0f}"
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}"


def _ratio(value):
    if value is None:
        return ""
    return f"{value:.2f}x" if value >= 0.1 else f"1/{1 / value:.0f}"


def render(figures):
    """Lines of a table, its notes at the end of each line."""
    head = ["what", "distrun", "unit", "against", "theirs", "ratio", "bar", "holds", "note"]
    rows = [head]
    for figure in figures:
        verdict = {None: "", True: "yes", False: "NO"}[figure.holds]
        rows.append(
            [
                figure.row,
                _number(figure.ours, figure.unit),
                figure.unit,
                figure.against,
                _number(figure.theirs, figure.unit),
                _ratio(figure.ratio),
                figure.bar,
                verdict,
                figure.note,
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    right = {1, 4, 5}
    lines = []
    for row in rows:
        cells = [
            row[i].rjust(width) if i in right else row[i].ljust(width) for i, width in enumerate(widths)
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def as_data(figures):
    return [dataclasses.asdict(figure) for figure in figures]
