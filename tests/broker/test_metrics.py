"""Names of metrics: documented, of one form, and the same in code and documentation."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.broker.metrics import HELP, Metrics
from tidelog.protocol.api import Api

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_page_names_every_metric_and_no_other() -> None:
    """docs/metrics.md is the table of the code, word for word."""
    rows = re.findall(r"^\| `(tidelog_[a-z_]+)`[^|]*\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert dict(rows) == HELP
    assert [name for name, _ in rows] == list(HELP)


def test_names_follow_one_form() -> None:
    """Lower case with underscores, units and `_total` last, a sentence of help."""
    for name, text in HELP.items():
        assert re.fullmatch(r"tidelog_[a-z]+(_[a-z]+)*", name), name
        assert text.endswith("."), name


def test_requests_and_errors_are_counted_by_label() -> None:
    """Each api and each code is its own counter; numbers that are no api share one."""
    metrics = Metrics()
    for api in (Api.PING, Api.PING, 999, 998):
        metrics.count_request(api)
    metrics.count_error("UNSUPPORTED")
    values = metrics.values()
    assert values['tidelog_requests_total{api="ping"}'] == 2
    assert values['tidelog_requests_total{api="unknown"}'] == 2
    assert values['tidelog_errors_total{code="UNSUPPORTED"}'] == 1
    assert {name.split("{")[0] for name in values} <= set(HELP)
