"""Ratios, targets, tables and the picture, from results that are given."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench.compare import FAMILIES, turns
from bench.comparison import comparison_table, rows_of, shares_of
from bench.figures import FIGURES
from bench.result import Result, results_table, shown
from bench.targets import TARGETS

from bench import chart

OURS = {("send", 100, "synced"): [2_000_000.0, 3_000_000.0, 1_000_000.0], ("round_trip_p50", 100, "synced"): [200.0]}
PEERS = {("send", 100, "page-cache"): [1_000_000.0, 1_000_000.0, 1_000_000.0]}
PEERS |= {("round_trip_p50", 100, "page-cache"): [300.0]}


def test_a_ratio_is_taken_round_by_round() -> None:
    """The ratio is the median of the rounds' ratios; of latencies a shorter one is better."""
    send, middle = rows_of(OURS, PEERS, ["send", "round-trip"])
    assert sorted(send.ratios) == [1.0, 2.0, 3.0]
    assert send.is_met is True
    assert send.target.words == ">= 2 x Kafka's default"
    assert middle.ratios == [1.5]
    assert middle.is_met is True
    assert middle.target.words == "below Kafka's default"


def test_a_target_that_is_missed_says_so() -> None:
    """A ratio or a latency that falls short is not met, and a row without a target has no answer."""
    slow = {("send", 100, "synced"): [1_900_000.0], ("send", 1_000, "synced"): [1.0]}
    slow |= {("round_trip_p50", 100, "written"): [151.0]}
    peers = PEERS | {("send", 100, "page-cache"): [1_000_000.0], ("send", 1_000, "page-cache"): [1.0]}
    found = {(row.target.figure, row.target.size): row.is_met for row in rows_of(slow, peers, FAMILIES)}
    assert found == {("send", 100): False, ("send", 1_000): None, ("round_trip_p50", 100): False}


def test_a_comparison_is_a_table() -> None:
    """Every row has both values, the ratio with its extremes, the target in words and whether it is met."""
    table = comparison_table(rows_of(OURS, PEERS, ["send"]), "Kafka 4")
    assert table.splitlines()[-1] == (
        "| send, synced | 100 B | 2.00 M/s | 1.00 M/s | send, page-cache | 2.00 (1.00 - 3.00)"
        " | >= 2 x Kafka's default | yes |"
    )


def test_a_figure_is_a_share_of_another_of_the_same_rounds() -> None:
    """With another group beside it a queue is to keep nine tenths, as the median of the rounds."""
    ours = {("queue", 100, "synced"): [100.0, 200.0, 100.0], ("queue_beside", 100, "synced"): [95.0, 150.0, 91.0]}
    (share,) = shares_of(ours)
    assert share.line == "queue_beside is 0.91 (0.75 - 0.95) of queue, synced; target >= 0.9: met"
    assert shares_of({("queue_beside", 100, "synced"): [1.0]}) == []


def test_every_target_names_figures_that_exist() -> None:
    """No row compares what nobody measures."""
    for target in TARGETS:
        assert {target.figure, target.peer_figure} <= set(FIGURES)


def test_a_family_is_measured_beside_all_that_it_is_compared_with() -> None:
    """Our lists and our single calls stand in one group with both of Kafka's ways, each measured once."""
    (group,) = turns(["send", "lists"], "python")
    assert [(turn.family, turn.durability, turn.sizes) for turn in group] == [
        ("send", "synced", (100, 1_000)),
        ("send", "page-cache", (100, 1_000)),
        ("lists", "synced", (100, 1_000)),
        ("send", "flushed", (100, 1_000)),
        ("send", "written", (100, 1_000)),
        ("lists", "written", (100, 1_000)),
    ]


def test_a_result_survives_its_line() -> None:
    """What one process prints another reads."""
    result = Result("tidelog 1", "send", 100, "synced", (1.5, 3.0, 2.0))
    line = json.loads(result.line())
    assert (line["value"], line["low"], line["high"], line["unit"], line["rounds"]) == (2.0, 2.0, 3.0, "msg/s", 3)
    assert Result.of_line(result.line()) == result
    assert results_table([result]).splitlines()[-1] == "| send | 100 B | synced | 2 /s | 2 /s - 3 /s |"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2_345_678.0, "msg/s", "2.35 M/s"),
        (23_456_789.0, "msg/s", "23.5 M/s"),
        (1_234.0, "msg/s", "1.23 k/s"),
        (999.0, "msg/s", "999 /s"),
        (333.4, "us", "333 us"),
        (12_345.0, "us", "12,345 us"),
        (0.718, "s", "0.72 s"),
    ],
)
def test_a_value_is_shown_with_three_digits(value: float, unit: str, text: str) -> None:
    """Tables show what counts of a value."""
    assert shown(value, unit) == text


def kept(tmp_path: Path) -> Path:
    """A comparison as `bench.compare --json` keeps it."""
    rows = [row.as_json() for row in rows_of(OURS, PEERS, ["send", "round-trip"])]
    path = tmp_path / "compared.json"
    machine = {"processor": "Some & other", "cores": 2}
    text = {"date": "2026-01-02T03:04+00:00", "systems": ["Kafka 4", "tidelog 1"], "machine": machine, "rounds": 3}
    path.write_text(json.dumps({**text, "rows": rows}))
    return path


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    """The picture is well-formed, shows both systems with value and ratio, and longer bars are better."""
    picture = tmp_path / "picture.svg"
    assert chart.main([str(kept(tmp_path)), str(picture)]) == 0
    root = ElementTree.fromstring(picture.read_text())
    texts = [element.text for element in root.iter() if element.text]
    assert {"tidelog 1", "Kafka 4", "2.00 M/s", "1.00 M/s", "2.0 x as many", "200 us", "300 us", "1.5 x as fast"} <= {
        *texts
    }
    widths = [int(bar.get("width", 0)) for bar in root.iter("{http://www.w3.org/2000/svg}rect")][3:]
    assert widths == [470, 235, 470, 313]


def test_a_picture_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A comparison without a row that is drawn ends with exit code 1 and no picture."""
    path = kept(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "rows": []}))
    assert chart.main([str(path), str(tmp_path / "picture.svg")]) == 1
    assert "expected rows to draw" in capsys.readouterr().err
    assert not (tmp_path / "picture.svg").exists()
