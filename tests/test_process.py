"""The package as a guest of a process: what importing it must leave alone, Python threads, forked children.

A fork, and whatever may hang, runs in a fresh interpreter with a time limit.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fresh
import lmhead_native as native
from calls import LOSSES, OPERANDS
from oracle import assert_same_bits
from shared_work import NAMES, WORK, answers

HERE = Path(__file__).parent

# ---- importing -----------------------------------------------------------------------------------------------------

# Everything about the process that a library could change without being asked.
GUEST = """
import ctypes, gc, json, locale, os, random, re, signal, sys, threading, warnings
from pathlib import Path
import numpy as np

def state():
    openmp = sorted(set(re.findall(r"/\\S*gomp\\S*", Path("/proc/self/maps").read_text())))
    functions = ["omp_get_max_threads", "omp_get_dynamic", "omp_get_max_active_levels", "omp_get_thread_limit"]
    return {{
        "subnormals": bool(np.float32(1e-45) != 0 and np.float32(1e-38) / np.float32(4) != 0),
        "rounding": ctypes.CDLL(None).fegetround(),
        "filters": [repr(f) for f in warnings.filters],
        "numpy errors": np.geterr(),
        "numpy print": repr(np.get_printoptions()),
        "numpy random": repr(np.random.get_state()),
        "random": repr(random.getstate()),
        "environment": dict(os.environ),
        "affinity": sorted(os.sched_getaffinity(0)),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": [repr(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "threads": len(os.listdir("/proc/self/task")),
        "python threads": threading.active_count(),
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
        "hooks": [repr(h) for h in (sys.excepthook, sys.displayhook, sys.meta_path, sys.path, sys.path_hooks)],
        "gc": [gc.isenabled(), gc.get_threshold()],
        "directory": os.getcwd(),
        "openmp": {{lib: [getattr(ctypes.CDLL(lib), f)() for f in functions] for lib in openmp}},
    }}

{before}
first = state()
import lmhead_native as native
{after}
second = state()
for openmp in second["openmp"]:
    first["openmp"].setdefault(openmp, {defaults})
print(json.dumps([[name, first[name], second[name]] for name in first if first[name] != second[name]]))
"""


def changes(before: str = "", after: str = "", options: tuple[str, ...] = ("-W", "error")) -> str:
    # An OpenMP library that was not there before is compared with its own answer after the import.
    code = GUEST.format(before=before, after=after, defaults='second["openmp"][openmp]')
    return fresh.output(code, options=options, environment={"LMHEAD_NUM_THREADS": None})


def test_import_changes_nothing() -> None:
    assert changes() == "[]\n"
    assert changes(options=("-W", "default")) == "[]\n"


def test_import_leaves_a_loaded_openmp_alone() -> None:
    """Loaded and set by another package before, it keeps its settings through import, thread counts and calls."""
    loaded = set(re.findall(r"/\S*gomp\S*", Path("/proc/self/maps").read_text()))
    assert bool(loaded) == (native.show_config("dicts")["parallel"] == "openmp")
    before = f"for path in {sorted(loaded)}: ctypes.CDLL(path).omp_set_num_threads(5)"
    after = "native.set_num_threads(1); native.softmax(np.ones((300, 300)), threads=1)"
    assert changes(before=before, after=after) == "[]\n"


def test_use_changes_nothing_but_threads() -> None:
    """Also with several threads, which OpenMP keeps: each of them computes with subnormals afterwards."""
    use = """
weight = np.full((2000, 64), 1e-45, np.float32)
logits = native.logits(weight[:64], np.ones_like(weight), threads=2)
assert (logits == 64 * np.float32(1e-45)).all()
native.softmax(logits, threads=2); native.topk(logits, 3, threads=2)
first["threads"] = len(os.listdir("/proc/self/task"))
"""
    assert changes(after=use) == "[]\n"


def test_import_takes_only_what_it_needs() -> None:
    """The bound on the time to import, without a clock: beyond NumPy and its types, the package's own few modules."""
    code = (
        "import sys, __future__, numpy, numpy.typing; before = set(sys.modules); import lmhead_native; "
        "print(*sorted(set(sys.modules) - before))"
    )
    own = {
        "_check_gradients",
        "_core",
        "_cross_entropy",
        "_frozen",
        "_head_norm",
        "_linear_cross_entropy",
        "_lm_head",
        "_logits",
    }
    own |= {
        "_loss_stats",
        "_norm",
        "_quantize",
        "_quantized_weight",
        "_runtime",
        "_sample",
        "_sample_result",
        "_scores",
        "_softmax",
        "_top_k",
        "_token_scores",
        "_typing",
        "_verified",
        "_verify",
    }
    assert set(fresh.output(code).split()) == {"lmhead_native"} | {f"lmhead_native.{name}" for name in own}


def test_reference_is_imported_when_looked_at() -> None:
    code = "import sys, lmhead_native as n; a = 'lmhead_native.reference' in sys.modules; n.reference; "
    assert fresh.output(code + "print(a, 'lmhead_native.reference' in sys.modules)") == "False True\n"


def test_import_starts_no_thread_and_writes_nothing() -> None:
    code = "import os, numpy; n = len(os.listdir('/proc/self/task')); import lmhead_native; "
    assert fresh.output(code + "print(len(os.listdir('/proc/self/task')) - n)") == "0\n"


# ---- Python threads ------------------------------------------------------------------------------------------------


def assert_right(found: dict[str, tuple[NDArray[Any], ...]], expected: dict[str, tuple[NDArray[Any], ...]]) -> None:
    assert found.keys() == expected.keys()
    for name, arrays in found.items():
        for actual, wanted in zip(arrays, expected[name], strict=True):
            assert_same_bits(actual, wanted)


def test_many_python_threads_get_the_same_bits() -> None:
    """Eight threads, every function, each with other thread counts, while one more changes the default."""
    assert WORK.keys() == OPERANDS.keys()
    before = native.get_num_threads()
    expected = {name: answers(name, 1) for name in NAMES}
    stop = threading.Event()
    start = threading.Barrier(9)

    def change() -> None:
        start.wait()
        while not stop.wait(0.001):
            native.set_num_threads(native.get_num_threads() % 3 + 1)

    def compute(seed: int) -> None:
        start.wait()
        for turn in range(4):
            order = np.random.default_rng([seed, turn]).permutation(list(NAMES))
            found = {str(name): answers(str(name), [None, 1, 2, 3][(seed + i) % 4]) for i, name in enumerate(order)}
            assert_right(found, expected)

    with ThreadPoolExecutor(9) as pool:
        changing = pool.submit(change)
        try:
            for done in [pool.submit(compute, seed) for seed in range(8)]:
                done.result()
        finally:
            stop.set()
            changing.result()
            native.set_num_threads(before)


def test_threads_may_write_into_one_array() -> None:
    """Each its own rows of one `out`, from one weight that all read."""
    hidden, weight = WORK["logits"]["hidden"], WORK["logits"]["weight"]
    out = np.full((len(hidden), len(weight)), np.nan, np.float32)
    with ThreadPoolExecutor(6) as pool:
        rows = [np.s_[i : i + 4] for i in range(0, len(hidden), 4)]
        list(pool.map(lambda r: native.logits(hidden[r], weight, out=out[r], threads=2), rows))
    assert_same_bits(out, native.logits(hidden, weight))


def long_call(name: str, rows: NDArray[Any]) -> Callable[[], object]:
    """Return a call on one thread that takes the longer the more rows there are, with all that it needs prepared."""
    width = rows.shape[1] // 4
    hidden, weight = rows[:, :width], rows[:300, :width]
    if name == "quantize":
        return functools.partial(native.quantize, hidden, threads=1)
    if name == "logits of integers":
        return functools.partial(native.logits, hidden, native.quantize(weight), threads=1)
    if name == "LMHead.topk":
        return functools.partial(native.LMHead(weight, screen="int8").topk, hidden, 50, threads=1)
    if name == "logits_sample":
        return functools.partial(native.logits_sample, hidden, weight, top_p=0.9, seed=1, threads=1)
    if name == "logits_scores":
        return functools.partial(native.logits_scores, hidden, weight, np.zeros(len(hidden), int), threads=1)
    if name == "verify":
        return functools.partial(native.verify, hidden, weight, np.zeros(len(hidden) - 1, int), seed=1, threads=1)
    operands = (hidden, weight) if "weight" in OPERANDS[name] else (rows,)
    given: dict[str, Any] = dict(zip(OPERANDS[name], operands, strict=True))
    if name in LOSSES:
        given["targets"] = np.zeros(len(rows), np.int64)
    if name.endswith("topk"):
        given["k"] = 50
    return functools.partial(getattr(native, name), **given, threads=1)


@pytest.mark.parametrize("name", NAMES)
def test_the_gil_is_released(name: str) -> None:
    """Another thread waits for a lock that this one frees just before the call. The interpreter is told never to make
    this thread give way, so the other one gets anywhere before the call is over only if the call itself lets go.
    """
    row = np.arange(20_000, dtype=np.float32)  # ascending: the slowest order for top-k
    interval = sys.getswitchinterval()

    def meanwhile(ready: threading.Event, lock: threading.Lock, log: list[str]) -> None:
        ready.set()
        with lock:
            log.append("ran")

    for attempt in range(
        21
    ):  # on a busy machine the other thread wakes late: calls grow from milliseconds to a tenth of a second
        rows = np.broadcast_to(row, (64 << attempt // 3, row.size))
        call = long_call(name, rows)
        ready, lock, log = threading.Event(), threading.Lock(), list[str]()
        with lock:
            thread = threading.Thread(target=meanwhile, args=(ready, lock, log))
            thread.start()
            ready.wait()
            sys.setswitchinterval(1000)
        try:
            call()
            ran = len(log) > 0
        finally:
            sys.setswitchinterval(interval)
        thread.join()
        if ran:
            return
    pytest.fail("no other thread ran during any of the calls")


# ---- forked and spawned children -----------------------------------------------------------------------------------

CHILDREN = """
import hashlib, os, sys, threading, warnings
sys.path.insert(0, {here!r})
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of fork() beside threads
import lmhead_native as native
from shared_work import NAMES, answers

def digest(threads=None):
    found = hashlib.sha256()
    for name in sorted(NAMES):
        for array in answers(name, threads):
            found.update(array.tobytes())
    return found.hexdigest()

def forked(body):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if body() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run_children(code: str) -> None:
    assert fresh.output(CHILDREN.format(here=str(HERE)) + code, environment={"LMHEAD_NUM_THREADS": "2"}) == "done\n"


def test_fork_after_threads_were_used() -> None:
    run_children("""
expected = digest()
assert forked(lambda: digest() == expected and digest(3) == expected and native.get_num_threads() == 2) == 0
assert forked(lambda: digest(1) == expected) == 0
assert forked(lambda: forked(lambda: digest() == expected) == 0 and digest() == expected) == 0
assert forked(lambda: digest() == "something else") == 1
assert digest() == expected and digest(3) == expected
print("done")
""")


def test_fork_before_threads_were_used() -> None:
    run_children("""
read, write = os.pipe()
assert forked(lambda: os.write(write, digest().encode()) == 64) == 0
assert os.read(read, 64).decode() == digest()
print("done")
""")


def test_fork_while_other_threads_compute() -> None:
    run_children("""
expected = digest()
stop = threading.Event()
wrong = []
def compute():
    while not stop.is_set():
        if digest(2) != expected: wrong.append(1)
threads = [threading.Thread(target=compute) for _ in range(2)]
for thread in threads: thread.start()
try:
    for _ in range(3):
        assert forked(lambda: digest(2) == expected) == 0
finally:
    stop.set()
    for thread in threads: thread.join()
assert not wrong
print("done")
""")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(
        CHILDREN.format(here=str(HERE))
        + f"""
import multiprocessing
if __name__ == "__main__":
    expected = digest()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(digest, [1, 2, 3, None]) == [expected] * 4
    print("done")
"""
    )
    assert fresh.output(script, environment={"LMHEAD_NUM_THREADS": "2"}) == "done\n"
