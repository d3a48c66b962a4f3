from turnwise.environments.repeated_runs import read_outcomes


def test_only_lines_of_the_report_s_own_form_count() -> None:
    lines = ["x", '[0, ["gave", 3]]', "[1]", '[2, ["raised"]]', '[true, ["gave", 1]]', "[4, []]", '[5, [["gave"], 1]]']
    report = "\n".join([*lines, '[3, ["raised", "E", 4]]', '[6, ["done", 4]]', '[0, ["gave", 4]]']).encode() + b"\n\xff"
    assert read_outcomes(report, {"gave": 2, "raised": 3}) == {0: ["gave", 4], 3: ["raised", "E", 4]}
