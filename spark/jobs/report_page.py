"""A report as a page of HTML that needs nothing else: figures in tables, rates, keys and partitions as pictures in SVG.

Topics' and keys' names come from anywhere, so all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from html import escape

from .topic_report import KeyShare, Rate, Spread, TopicReport

WIDTH, LEFT, RIGHT = 760, 20, 740
RATE_HEIGHT, PITCH, BAR_HEIGHT, LABEL_WIDTH = 160, 22, 14, 200
INK, PALE, BAR = "#212529", "#6c757d", "#0b7285"

SHOWN_KEY = 28
"""Characters of a key; the JSON has it whole."""

STYLE = (
    "body{font-family:system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#212529}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:right}"
    "td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}"
)


def report_page(report: TopicReport) -> str:
    """Return the page."""
    title = escape(f"Topic {report.topic}")
    span = "no record" if report.first is None or report.last is None else f"{_at(report.first)} to {_at(report.last)}"
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f"<p>{report.records:,} records, {report.bytes:,} bytes of values, {escape(span)}</p>",
        f"<h2>Records in steps of {_step(report.rate_step_s)}</h2>",
        rate_picture(report),
        f"<h2>Most frequent keys</h2><p>About {report.keys:,} keys; {report.without_key:,} records have none. The most"
        f" frequent one has {report.top_key_share:.1%}.</p>",
        bars_picture("Most frequent keys", [(shown_key(each), each.records) for each in report.top_keys]),
        f"<h2>Partitions</h2><p>The largest has {report.partition_skew:.2f} times the average.</p>",
        bars_picture("Partitions", [(f"{each.partition}", each.records) for each in report.partitions]),
        "<h2>Sizes and latencies</h2>",
        _spreads(report),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def rate_picture(report: TopicReport) -> str:
    """Return the rates over time as SVG: a bar for each step, also for those without a record."""
    steps = _all_steps(report.rates, report.rate_step_s)
    most = max((records for _, records in steps), default=0)
    height = RATE_HEIGHT + 54
    lines = [_opened(height, f"Records in steps of {_step(report.rate_step_s)}")]
    if steps:
        pitch = (RIGHT - LEFT) / len(steps)
        for place, (time, records) in enumerate(steps):
            tall = RATE_HEIGHT * records / most
            lines.append(
                f'<rect x="{LEFT + place * pitch:.2f}" y="{20 + RATE_HEIGHT - tall:.2f}" height="{tall:.2f}"'
                f' width="{max(pitch * 0.9, 0.5):.2f}" fill="{BAR}"><title>{_at(time)}: {records:,}</title></rect>'
            )
        per_second = most / report.rate_step_s
        lines.append(_text(LEFT, 14, f"at most {most:,} in {_step(report.rate_step_s)} ({per_second:,.1f}/s)", PALE))
        lines.append(_text(LEFT, RATE_HEIGHT + 40, _at(steps[0][0]), PALE))
        lines.append(_text(RIGHT, RATE_HEIGHT + 40, _at(steps[-1][0]), PALE, anchor="end"))
    return "\n".join([*lines, "</svg>"])


def bars_picture(title: str, bars: Sequence[tuple[str, int]]) -> str:
    """Return named numbers as bars in SVG."""
    most = max((number for _, number in bars), default=0) or 1
    lines = [_opened(PITCH * len(bars) + 8, title)]
    for place, (name, number) in enumerate(bars):
        top = 4 + place * PITCH
        length = (RIGHT - LEFT - LABEL_WIDTH - 110) * number / most
        lines.append(_text(LEFT, top + 12, name, INK))
        lines.append(
            f'<rect x="{LEFT + LABEL_WIDTH}" y="{top}" width="{max(length, 1):.1f}" height="{BAR_HEIGHT}"'
            f' fill="{BAR}"/>'
        )
        lines.append(_text(LEFT + LABEL_WIDTH + length + 6, top + 12, f"{number:,}", PALE))
    return "\n".join([*lines, "</svg>"])


def shown_key(share: KeyShare) -> str:
    """Return a key in a few characters that are safe to print."""
    if share.key is None:
        return "(no key)"
    text = share.key.decode("utf-8", "backslashreplace")
    text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if len(text) <= SHOWN_KEY else text[: SHOWN_KEY - 1] + "…"


def _all_steps(rates: Sequence[Rate], step_s: int) -> list[tuple[datetime, int]]:
    """Return every step from the first to the last, the empty ones too."""
    found = {each.time: each.records for each in rates}
    steps: list[tuple[datetime, int]] = []
    time = min(found, default=None)
    while time is not None and time <= max(found):
        steps.append((time, found.get(time, 0)))
        time += timedelta(seconds=step_s)
    return steps


def _spreads(report: TopicReport) -> str:
    heads = "".join(f"<th>{each}</th>" for each in ("", "records", "least", "p50", "p90", "p99", "most", "mean"))
    rows = [
        _row("value, bytes", report.sizes, 1),
        _row(f"latency from {report.latency_from}, ms", report.latencies, 1000),
    ]
    return f"<table><tr>{heads}</tr>{''.join(rows)}</table>"


def _row(name: str, spread: Spread | None, unit: int) -> str:
    if spread is None:
        return f"<tr><td>{escape(name)}</td><td>0</td></tr>"
    numbers: Iterable[float] = (spread.min, spread.p50, spread.p90, spread.p99, spread.max, spread.mean)
    cells = "".join(f"<td>{number / unit:,.{0 if unit == 1 else 1}f}</td>" for number in numbers)
    return f"<tr><td>{escape(name)}</td><td>{spread.count:,}</td>{cells}</tr>"


def _opened(height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif"'
        f' font-size="13" role="img"><title>{escape(title)}</title>'
    )


def _text(left: float, base: float, text: str, colour: str, *, anchor: str = "start") -> str:
    return f'<text x="{left:.1f}" y="{base}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _step(seconds: int) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return f"a {name}".replace("a hour", "an hour") if seconds == size else f"{seconds // size} {name}s"
    return f"{seconds} s"
