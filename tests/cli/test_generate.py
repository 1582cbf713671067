"""What `millpond generate` prints is read by the programs it is for, and names only what a node shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from millpond.cli.generate import grafana, prometheus
from millpond.serve.metric_table import METRICS, Metric, series_names
from tests.cli.conftest import Commands

SERIES = {name: metric for metric in METRICS for name in series_names(metric)}
NAME = re.compile(r"\b(?:millpond|process)_\w+")
SELECTOR = re.compile(r"\b(?P<name>(?:millpond|process)_\w+)\{(?P<labels>[^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|=|!~|!=)")
GROUPS = re.compile(r"by \((?P<labels>[^)]*)\) \((?:rate\()?(?P<name>\w+)")
# What Prometheus adds to every series of a target.
OF_THE_TARGET = {"instance", "job"}


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def queries() -> list[str]:
    made = [target["expr"] for panel in panels(grafana.dashboard()) for target in panel["targets"]]
    return [*made, *(rule.promql for rule in prometheus.RULES)]


def allowed(metric: Metric, series: str) -> set[str]:
    return {*metric.labels, *OF_THE_TARGET, *(["le"] if series.endswith("_bucket") else [])}


@pytest.mark.parametrize("promql", queries())
def test_a_query_names_only_what_a_node_shows(promql: str) -> None:
    named = NAME.findall(promql)
    assert named or promql.startswith("up{")
    assert [name for name in named if name not in SERIES] == []
    for found in SELECTOR.finditer(promql):
        metric = SERIES[found["name"]]
        assert set(LABEL.findall(found["labels"])) <= allowed(metric, found["name"])
    for found in GROUPS.finditer(promql):
        labels = {label.strip() for label in found["labels"].split(",")}
        assert labels <= allowed(SERIES[found["name"]], found["name"])


@pytest.mark.parametrize("promql", queries())
def test_counters_are_asked_for_their_rate_and_gauges_for_their_value(promql: str) -> None:
    for name in NAME.findall(promql):
        metric = SERIES[name]
        rising = metric.kind in ("counter", "histogram")
        assert bool(re.search(rf"(rate|increase)\({name}\b", promql)) == rising
    if "histogram_quantile" in promql:
        assert "_bucket" in promql
        assert "by (le" in promql


def test_the_dashboard_shows_every_topic_and_its_panels_do_not_overlap(millpond: Commands) -> None:
    made = json.loads(millpond("generate", "grafana-dashboard").out)
    rows = [panel["title"] for panel in made["panels"] if panel["type"] == "row"]
    topics = ["Ingest", "Durability", "Live and settled", "Reading and latency", "Consumer groups", "Doors", "Process"]
    assert rows == topics
    cells: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not own & cells, panel["title"]
        cells |= own
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    assert {variable["name"] for variable in made["templating"]["list"]} == {"datasource", "instance", "stream"}
    for panel in panels(made):
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    assert any("histogram_quantile" in promql for promql in queries())


def test_variables_ask_for_labels_that_are_there() -> None:
    for variable in grafana.dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((?P<name>\w+)(?:\{.*\})?, (?P<label>\w+)\)", variable["definition"])
            assert found
            assert found["label"] in allowed(SERIES[found["name"]], found["name"])


def test_the_config_says_where_and_with_what_to_scrape(millpond: Commands) -> None:
    said = millpond(
        *("generate", "prometheus-config", "--target", "pond.example:7070"),
        *("--credentials-file", '/etc/a "b"/token: x', "--ca-file", "/etc/ca.pem"),
    )
    made = yaml.safe_load(said.out)
    (job,) = made["scrape_configs"]
    assert job["job_name"] == prometheus.JOB
    assert job["scheme"] == "https"
    assert job["metrics_path"] == "/metrics"
    assert job["authorization"] == {"type": "Bearer", "credentials_file": '/etc/a "b"/token: x'}
    assert job["tls_config"] == {"ca_file": "/etc/ca.pem"}
    assert job["static_configs"] == [{"targets": ["pond.example:7070"]}]
    assert made["rule_files"] == [prometheus.RULES_FILE]
    assert "--rules" in said.talk


def test_without_options_it_fits_a_node_on_this_machine(millpond: Commands) -> None:
    (job,) = yaml.safe_load(millpond("generate", "prometheus-config").out)["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:7070"]}]
    assert job["scheme"] == "http"
    assert not {"authorization", "tls_config"} & set(job)


def test_the_rules_say_what_to_do(millpond: Commands) -> None:
    (group,) = yaml.safe_load(millpond("generate", "prometheus-config", "--rules").out)["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}
    assert {
        "MillpondDown",
        "MillpondJournalRefusesWrites",
        "MillpondSettleFailing",
        "MillpondBoundaryLag",
        "MillpondMemoryFull",
        "MillpondDiskNearlyFull",
    } <= set(alerts)
    for rule in alerts.values():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


@pytest.mark.parametrize("target", ["http://pond:7070", "pond", "pond:", "a b:7070", "pond:7070\n"])
def test_a_target_that_is_no_host_and_port_is_refused(millpond: Commands, target: str) -> None:
    assert "HOST:PORT" in millpond("generate", "prometheus-config", "--target", target, code=2).talk


def test_json_is_json(millpond: Commands) -> None:
    assert millpond("generate", "grafana-dashboard", "--json").one == grafana.dashboard()
    assert yaml.safe_load(millpond("generate", "prometheus-config", "--json").one["config"])["scrape_configs"]


def test_prometheus_itself_takes_all_of_it(millpond: Commands, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; the package prometheus has it")
    (tmp_path / "token").write_text("secret")
    config = tmp_path / "prometheus.yml"
    config.write_text(millpond("generate", "prometheus-config", "--credentials-file", str(tmp_path / "token")).out)
    (tmp_path / prometheus.RULES_FILE).write_text(millpond("generate", "prometheus-config", "--rules").out)
    records = [
        {"record": f"panel:{at}", "expr": promql.replace("$__rate_interval", "5m")}
        for at, promql in enumerate(queries())
    ]
    asked = tmp_path / "queries.yml"
    asked.write_text(json.dumps({"groups": [{"name": "panels", "rules": records}]}))
    for words in (["check", "config", str(config)], ["check", "rules", str(asked)]):
        checked = subprocess.run([promtool, *words], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_meter_readings_go_through_a_pipe_or_straight_into_a_stream(millpond: Commands) -> None:
    """F12: the same readings, whichever way they come."""
    words = ("generate", "gridpocket", "--meters", "3", "--every", "6h", "--start", "2026-02-01")
    piped = millpond(*words)
    assert [row["vid"] for row in piped.several] == [0, 1, 2] * 4
    assert piped.several[3]["date"] == "2026-02-01T06:00:00.000000Z"
    assert len(millpond(*words, "--format", "csv").out.splitlines()) == 13
    millpond("init")
    assert millpond(*words, "--into", "grid/direct", "--json").one["rows"] == 12
    assert "no format" in millpond(*words, "--format", "xml", code=2).talk
    direct = millpond("scan", "grid/direct", "--columns", ",".join(piped.several[0])).several
    assert sorted(direct, key=lambda row: (row["date"], row["vid"])) == piped.several


def test_readings_come_as_time_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three moments of an hour each, at 3,600 times the pace of time: one at once, then one a second."""
    from datetime import timedelta

    from millpond.cli.generate import gridpocket as command
    from millpond.gridpocket import Readings

    now, waits = 100.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    monkeypatch.setattr(command.time, "monotonic", lambda: now)
    monkeypatch.setattr(command.time, "sleep", sleep)
    made = Readings(5, period=timedelta(hours=3), every=timedelta(hours=1))
    batches = list(command.paced(made, 3600.0, 4))
    assert waits == pytest.approx([0.0, 1.0, 1.0])
    assert [batch.num_rows for batch in batches] == [4, 1] * 3
