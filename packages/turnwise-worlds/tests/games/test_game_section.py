"""The section of report.html that the package adds: what `turnwise exploitability` measured."""

import json
from pathlib import Path

from turnwise.config.load import dump_resolved
from turnwise.config.run import RunConfig
from turnwise.reporting.report import write_report
from turnwise.store.run_folder import RunFolder
from turnwise_worlds.reporting.game_tables import MEASURED


def test_what_was_measured_of_a_game_is_shown_and_damage_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    run.write_json("config.json", dump_resolved(RunConfig()))
    assert "At its games" not in write_report(run).read_text()
    row = {"label": "<last>", "exploitability": 0.0664, "losses": [0.1, 0.0328], "value": -0.05, "optimal": None}
    row |= dict.fromkeys(("earns_uniform", "earns_perfect", "wins_uniform", "wins_perfect", "legal"), 0.25)
    report = {"game": "kuhn", "value": -1 / 18, "rows": [row], "steps": [0, 40], "earned": [[0.0, -0.5], [0.5, 0.0]]}
    (run.path / MEASURED).write_text(json.dumps([report]))
    page = write_report(run).read_text()
    assert '<section id="games"><h2>At its games</h2>' in page
    assert "kuhn, worth -0.0556 to player 0 under perfect play" in page
    assert "<td>&lt;last&gt;</td><td>0.0664</td><td>0.1000</td><td>0.0328</td><td>-0.0500</td><td>+0.250</td>" in page
    assert "<td>40</td><td>+0.500</td><td>+0.000</td>" in page
    (run.path / MEASURED).write_text("[{}]")
    assert f"exploitability.json (&#x27;rows&#x27;); run `turnwise exploitability {run.path}` again" in (
        write_report(run).read_text()
    )
