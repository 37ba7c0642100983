"""What a run says, as tables and as a chart."""

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
from bench.peers.catalog import Peer, load_peers
from bench.peers.chart import svg
from bench.peers.markdown import markdown
from bench.peers.repetition import Measured
from bench.peers.results import Document, Repeated, tables_of
from bench.peers.speed import Speed, machine_speed
from bench.peers.spread import Spread
from bench.peers.works import WORKS

SVG = "{http://www.w3.org/2000/svg}"
SPEED = Speed(loop_sec=0.5, fsyncs_per_s=400, cores=2, load=0.1, python="3.11.7", filesystem="ext4")


def test_ratios_are_noonday_divided_by_the_peer_that_was_measured_beside_it() -> None:
    (table,) = document().tables
    rows = {row.peer: row for row in table.rows}
    assert rows["graphile-worker"].noonday == {"noonday-embedded": Spread(2, 2, 2, 1)}
    assert rows["river"].noonday == {"noonday-embedded": Spread(1, 0.5, 1.5, 2)}
    assert rows["river"].noonday_cpu == {"noonday-embedded": Spread(2, 2, 2, 2)}
    assert rows["noonday-embedded"].noonday == {}
    assert rows["noonday-embedded"].figures["per_s"] == Spread(150, 100, 400, 3)


def test_tables_show_medians_spreads_ratios_and_what_went_wrong() -> None:
    text = markdown(document())
    assert "| River | 1,000 | 150 (100 to 200) |" in text
    assert "| 1.00 (0.50 to 1.50) |" in text
    assert "| 3, 0, 0 |" in text
    assert "keeps no history" in text
    assert "- asynq: go is not on the PATH" in text
    assert "failed: it \\| broke" in text
    assert "5,000,000 turns of a Python loop in 0.50 s, 400 fsyncs a second" in text


def test_every_line_of_a_table_has_as_many_cells() -> None:
    for part in markdown(document()).split("\n\n"):
        lines = [line.replace("\\|", "") for line in part.split("\n") if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1


def test_a_chart_has_a_bar_for_each_peer_with_figures() -> None:
    drawn = ET.fromstring(svg(document()))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "burst: jobs/s, more is better" in texts
    assert texts.index("graphile-worker") < texts.index("River")
    bars = [rect for rect in drawn.iter(f"{SVG}rect") if rect.get("height") == "18"]
    assert len(bars) == 3
    assert max(float(bar.get("width") or 0) for bar in bars) < 900


def test_a_chart_of_nothing_is_empty() -> None:
    empty = msgspec.structs.replace(document(), tables=[])
    assert list(ET.fromstring(svg(empty)).iter(f"{SVG}text")) == []


def test_the_speed_of_the_machine_is_measured_on_the_disk_that_is_used(tmp_path: Path) -> None:
    speed = machine_speed(tmp_path, sync_sec=0.01, turns=1_000)
    assert list(tmp_path.iterdir()) == []
    assert speed.fsyncs_per_s > 0
    assert speed.loop_sec >= 0


def document() -> Document:
    repeated = [
        Repeated(0, "river", of("river", 200, 50)),
        Repeated(0, "river", of("noonday-embedded", 100, 100)),
        Repeated(0, "graphile-worker", of("graphile-worker", 200, None)),
        Repeated(0, "graphile-worker", of("noonday-embedded", 400, 60)),
        Repeated(1, "river", of("river", 100, 50, lost=3)),
        Repeated(1, "river", of("noonday-embedded", 150, 100)),
        Repeated(1, "graphile-worker", Measured("graphile-worker", "burst", failed="it | broke")),
    ]
    known = load_peers()
    peers: dict[str, Peer] = {name: known[name] for name in ("noonday-embedded", "river", "graphile-worker")}
    return Document(
        machine=SPEED,
        machine_after=SPEED,
        took_sec=60,
        rounds=2,
        peers=list(peers.values()),
        missing={"asynq": "go is not on the PATH"},
        tables=tables_of([WORKS["burst"], WORKS["idle"]], peers, repeated),
        repetitions=repeated,
    )


def of(peer: str, per_s: float, cpu_us: float | None, lost: int = 0) -> Measured:
    return Measured(peer, "burst", 1_000, {"per_s": per_s, "p99_ms": 20, "cpu_us": cpu_us}, lost)
