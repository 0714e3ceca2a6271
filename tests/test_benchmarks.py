"""The benchmarks of grading: do they run, and do they compare what is alike?"""

import json

import pytest

from benchmarks import grading, synthetic


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_the_synthetic_class_is_the_same_each_time(kind):
    """Does a student's notebook depend on nothing but its number, and differ from the others'?"""
    one, again, other = (synthetic.notebook_of(kind, number) for number in (4, 4, 5))
    assert one == again
    assert kind in ("full", "blank") or one != other


def numbers(cpu, wall, points):
    row = {"cpu_s_per_submission": cpu, "wall_s_per_submission": wall, "start_s": 1.0, "peak_mib": 100}
    return row | {"scores": {"ada": {"sdpa": points, "causal_mask": 1.0}}}


def test_the_report_holds_what_is_promised():
    """Are the keys those of the design, the ratios right, and different scores told?"""
    found = {
        "stock": numbers(8.0, 9.0, 4.0),
        "ours": numbers(0.4, 0.5, 4.0),
        "ours_2_workers": numbers(0.4, 0.25, 4.0),
        "floor": numbers(0.2, 0.2, 4.0),
    }
    told = grading.report(found)
    assert {"stock", "ours", "ours_2_workers", "floor", "identical_scores", "date", "device"} <= told.keys()
    assert told["ratios"] == {
        "stock / ours, CPU": 20.0,
        "ours / floor, CPU": 2.0,
        "1 worker / 2 workers, wall": 2.0,
    }
    assert told["identical_scores"] and "scores" not in told["ours"]
    assert grading.table(told).count("\n") == 5
    found["floor"] = numbers(0.2, 0.2, 3.9)
    assert not grading.report(found)["identical_scores"]


def test_what_a_file_earns_is_not_compared():
    """Stock trains while it grades, and gives points for that: are they left out, and is that told?"""
    found = {"stock": numbers(8.0, 9.0, 4.0), "ours": numbers(0.4, 0.5, 4.0)}
    assert "not_compared" not in grading.report(found)
    found["stock"]["scores"]["ada"]["trained_translator"] = 9.0
    told = grading.report(found)
    assert told["identical_scores"] and told["not_compared"] == ["trained_translator"]


@pytest.mark.slow
def test_two_submissions_are_measured(tmp_path, monkeypatch):
    """Do our grader, with one worker and with two, and the floor give numbers, and the same scores?"""

    measured, seen = grading.measured, {}

    def without_stock(way, root, phase, students, bar):
        if way == "stock":
            return numbers(1.0, 1.0, 0.0) | {"scores": seen}
        found = measured(way, root, phase, students, bar)
        seen.update(found["scores"])
        return found

    monkeypatch.setattr(grading, "measured", without_stock)
    grading.main(["--submissions", "2", "--others", "0", "--blank", "1", "--out", str(tmp_path / "grading.json")])
    told = json.loads((tmp_path / "grading.json").read_text())
    for way in ("ours", "ours_2_workers", "floor"):
        assert told[way]["cpu_s_per_submission"] > 0 and told[way]["peak_mib"] > 100
    assert told["identical_scores"]
