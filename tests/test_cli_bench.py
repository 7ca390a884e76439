"""``lmhead-native bench``: its table, JSON and plot, and that what it compares can be compared.

The peers are those installed: NumPy always, PyTorch where it is.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import lmhead_native as native
from lmhead_native.cli import main, peers
from lmhead_native.cli.timing import interleave
from lmhead_native.cli.workload import DTYPES, NAMED_SHAPES, OPS, PROJECTIONS, Shape, Workload, random_matrix

TINY_BENCH = ["bench", "--shape", "16x100", "--rows", "1,3", "--repeat", "2", "-k", "4", "--peers", "numpy"]
INSTALLED = peers.PEERS if importlib.util.find_spec("torch") is not None else ("numpy",)


def test_bench_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    assert main([*TINY_BENCH, "--op", "logits,softmax", "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"logits, f32, 16x100 (6.25 KiB), threads = {native.get_num_threads()}"
    assert lines[1].split() == ["rows", "ours", "NumPy", "roof", "limit", "ours/roof", "NumPy/ours"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "3"]
    assert lines[5].startswith("softmax, f32, rows of 100 logits")
    records = json.loads(path.read_text("utf-8"))["results"]
    assert [(record["op"], record["rows"]) for record in records] == [
        ("logits", 1),
        ("logits", 3),
        ("softmax", 1),
        ("softmax", 3),
    ]
    for record in records:
        medians = record["median_seconds"]
        assert [len(times) for times in record["samples_seconds"].values()] == [2, 2]
        assert record["times_ours"]["numpy"] == pytest.approx(medians["numpy"] / medians["ours"])
        assert record["share_of_roof"]["ours"] == pytest.approx(record["roof_seconds"] / medians["ours"])
        assert record["roof_seconds"] > 0


def test_bench_plot_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*TINY_BENCH, "--plot", str(tmp_path / "out.png")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""  # found out before anything was measured
    assert captured.err.startswith("lmhead-native: error: --plot needs matplotlib, which is not installed")
    assert "[bench]" in captured.err
    assert captured.err.count("\n") == 1


def test_bench_of_everything_with_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.png"
    everything = ["--op", ",".join(OPS), "--dtype", "f32,bf16,f16", "--peers", ",".join(INSTALLED), "--threads", "1"]
    assert main([*TINY_BENCH[:-2], *everything, "--plot", str(path)]) == 0
    output = capsys.readouterr().out
    assert output.count("NumPy/ours") == 3 * len(OPS)
    assert output.count("PyTorch/ours") == (3 * len(OPS) if "torch" in INSTALLED else 0)
    assert "NumPy multiplies float32 copies" in output
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_contestants_compute_the_same(op: str, dtype: str) -> None:
    weight_vd = random_matrix(300, 40, dtype, seed=1) if op in PROJECTIONS else None
    data = random_matrix(5, 40 if op in PROJECTIONS else 300, dtype, seed=2)
    racers = peers.contestants(op, data, weight_vd, 7, threads=1, peers=INSTALLED)
    assert [racer.name for racer in racers] == ["ours", *INSTALLED]
    answers = [racer.call() for racer in racers]
    # Of a top-k list the values: ties, which half precision has, may come with other ids.
    values = [answer[0] if isinstance(answer, tuple) else answer for answer in answers]
    expected, *others = (np.asarray(value.float() if hasattr(value, "float") else value) for value in values)
    # PyTorch rounds its results to the dtype of its operands: bfloat16 keeps 8 bits, float16 11.
    tolerance = {"f32": 1e-5, "bf16": 2**-7, "f16": 2**-10}[dtype]
    for other in others:
        np.testing.assert_allclose(other.astype(np.float32), expected, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize(
    ("work", "bytes_moved", "flops"),
    [
        (Workload("logits", "f32", Shape("s", 10, 1000), 3, 5), 4 * 10 * (1000 + 3), 2 * 3 * 10 * 1000),
        (Workload("logits_topk", "bf16", Shape("s", 10, 1000), 3, 5), 2 * 10 * (1000 + 3), 2 * 3 * 10 * 1000),
        (Workload("softmax", "f16", Shape("s", 10, 1000), 3, 5), (2 + 4) * 3 * 1000, 0),
        (Workload("logsumexp", "f32", Shape("s", 10, 1000), 3, 5), 4 * 3 * 1000, 0),
    ],
)
def test_workloads_cost_what_cannot_be_avoided(work: Workload, bytes_moved: int, flops: int) -> None:
    assert (work.bytes_moved, work.flops) == (bytes_moved, flops)


def test_named_shapes() -> None:
    assert Shape.parse("gpt2") == Shape("gpt2", 768, 50257)
    assert [Shape.parse(name).width for name in NAMED_SHAPES] == [576, 768, 896, 4096, 2304]


def test_samples_are_interleaved() -> None:
    order: list[str] = []
    calls = [lambda name=name: order.append(name) for name in "abc"]
    starts: list[int] = []
    samples = interleave(calls, 3, each_round=lambda: starts.append(len(order)))
    assert [len(times) for times in samples] == [3, 3, 3]
    rounds = [order[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
    assert ["".join(dict.fromkeys(names)) for names in rounds] == ["abc", "bca", "cab"]
