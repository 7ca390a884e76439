"""Model files that lie: absurd counts and lengths, offsets that lead elsewhere, shapes that do not fit.

Each is refused by a ValueError that names file and field, at once and in little memory.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import model_file_writers as write
from model_file_samples import GAIN, GGUF, PAIRS, SAFETENSORS, TENSORS, WEIGHT, D, V, find, little_memory
from model_file_writers import ARRAY, STRING, U8, Tensor, tensor


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes, str, str], None]:
    """A file is refused with a message about this field."""

    def check(octets: bytes, suffix: str, message: str) -> None:
        path = tmp_path / f"file{suffix}"
        path.write_bytes(octets)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: {message}") as caught:
            find(path)
        assert len(str(caught.value)) < 600

    return check


@pytest.fixture
def bounded() -> Iterator[None]:
    """A test allocates little at any time."""
    with little_memory():
        yield


# --- GGUF: lies ------------------------------------------------------------------------------------------------------

HUGE = [2**31, 2**60, 2**63 - 1, 2**63, 2**64 - 1]


def at(place: int, layout: str, *values: float) -> bytes:
    """Return the file with numbers written over a place."""
    new = struct.pack(layout, *values)
    return GGUF[:place] + new + GGUF[place + len(new) :]


def behind(name: bytes) -> int:
    """Return the place behind a name in the file."""
    return GGUF.index(struct.pack("<Q", len(name)) + name) + 8 + len(name)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (8, "tensor_count: expected at most 131072 items, got 67108864 items"),
        (16, "metadata_kv_count: expected at most 65536 items, got 67108864 items"),
        (behind(b"tokens") + 8, "tokens: expected at most 8388608 items, got 67108864 items"),
        (behind(b"deep") + 8, "deep: expected at most 4096 items, got 67108864 items"),
        (behind(b"deep") + 33, "deep: expected at most 8388608 items, got 67108864 items"),
    ],
)
def test_gguf_that_is_long_enough_for_its_counts(tmp_path: Path, place: int, message: str) -> None:
    """A sparse file costs nothing on disk, so its length bounds no work."""
    path = tmp_path / "file.gguf"
    path.write_bytes(GGUF[:place] + struct.pack("<Q", 2**26) + GGUF[place + 8 :])
    os.truncate(path, 2**36)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")), little_memory():
        find(path)


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    ("place", "message"),
    [
        (8, "tensor_count: expected items of 33 bytes or more in the "),
        (16, "metadata_kv_count: expected items of 14 bytes or more in the "),
        (24, "metadata key: expected a text of at most 65535 bytes, got "),
        (behind(b"general.architecture") + 4, "general.architecture: expected "),
        (behind(b"tokens") + 8, "tokens: expected items of 8 bytes or more in the "),
        (behind(b"tokens") + 16, "tokens: expected 3 strings inside the file, got one that leads out of it"),
        (behind(b"tokens") + 33, "tokens: expected 3 strings inside the file, got one that leads out of it"),
        (behind(b"types") + 8, "types: expected items of 1 bytes or more in the "),
        (behind(b"deep") + 8, "deep: expected items of 12 bytes or more in the "),
        (behind(b"deep") + 20, "deep: expected items of 1 bytes or more in the "),
        (behind(b"deep") + 33, "deep: expected items of 8 bytes or more in the "),
        (behind(b"output.weight") + 4, "output.weight: expected data inside the file of "),
        (behind(b"output.weight") + 12, "output.weight: expected data inside the file of "),
        (behind(b"output.weight") + 24, "output.weight: expected "),
        (behind(b"token_embd.weight") - 25, "tensor name: expected a text of at most 65535 bytes, got "),
    ],
)
def test_gguf_with_huge_numbers(
    number: int, place: int, message: str, refused: Callable[[bytes, str, str], None], bounded: None
) -> None:
    refused(at(place, "<Q", number), ".gguf", message)


@pytest.mark.parametrize(
    ("octets", "message"),
    [
        (b"", "file: expected at least one byte, got an empty file"),
        (b"GGML" + GGUF[4:], "magic: expected b'GGUF', got b'GGML'"),
        (at(8, "<Q", 99), "tensor_count: expected items of 33 bytes or more in the "),
        (at(16, "<Q", 199), "metadata_kv_count: expected items of 14 bytes or more in the "),
        (at(4, "<I", 1), "version: expected 2 or 3, little-endian, got 1"),
        (at(4, "<I", 4), "version: expected 2 or 3, little-endian, got 4"),
        (at(4, ">I", 3), "version: expected 2 or 3, little-endian, got 3 in a big-endian file"),
        (
            at(behind(b"general.architecture"), "<I", 13),
            "general.architecture: expected a value type from 0 to 12, got",
        ),
        (at(behind(b"general.alignment"), "<I", 6), "general.alignment: expected a power of two, 8 or more, got 4"),
        (
            at(behind(b"general.alignment") + 4, "<I", 24),
            "general.alignment: expected a power of two, 8 or more, got 24",
        ),
        (at(behind(b"general.alignment") + 4, "<I", 4), "general.alignment: expected a power of two, 8 or more, got 4"),
        (at(behind(b"general.alignment") + 4, "<I", 0), "general.alignment: expected a power of two, 8 or more, got 0"),
        (at(behind(b"types") + 4, "<I", 99), "types: expected a value type from 0 to 12, got 99"),
        (at(behind(b"output.weight"), "<I", 0), "output.weight: expected 1 to 4 dimensions, got 0"),
        (at(behind(b"output.weight"), "<I", 5), "output.weight: expected 1 to 4 dimensions, got 5"),
        (
            at(behind(b"token_embd.weight") + 4, "<Q", 33),
            "token_embd.weight: expected rows of whole Q8_0 blocks of 32, ",
        ),
        (
            at(behind(b"output.weight") + 24, "<Q", 1),
            "output.weight: expected an offset that is a multiple of 32, got 1",
        ),
        (at(behind(b"output.weight") + 24, "<Q", 32), "output.weight: expected data of its own, got offset "),
        (at(behind(b"output.weight") + 12, "<Q", 0), r"output.weight: expected shape \(vocabulary, width\), neither 0"),
        (
            at(behind(b"output.weight") + 4, "<Q", 16),
            r"output_norm.weight: expected shape \(16,\), as the head has, got",
        ),
        (
            at(behind(b"output_norm.weight") + 12, "<I", 24),
            "output_norm.weight: expected F32, F16, BF16 or F64, got I8",
        ),
        (at(behind(b"grok.logit_scale") + 4, "<f", np.nan), "grok.logit_scale: expected a finite number, got nan"),
        (GGUF.replace(b"general.alignment", b"general.alignmen\xff"), "metadata key: expected UTF-8, got byte 0xff"),
        (GGUF.replace(b"output.weight", b"output.weigh\xff"), "tensor name: expected UTF-8, got byte 0xff"),
        (write.gguf(PAIRS, []), r"output.weight: expected that tensor or token_embd.weight, got no tensors"),
        (write.gguf([*PAIRS, PAIRS[1]], []), "grok.attention.layer_norm_rms_epsilon: expected one value, got a second"),
        (write.gguf([("a", ARRAY, (U8, [])), ("a", U8, 1)], []), "a: expected one value, got a second one"),
        (write.gguf([("a", STRING, "x" * 9999), ("a", U8, 1)], []), "a: expected one value, got a second one"),
        (write.gguf([("", U8, 1)], []), "metadata key: expected a name, got an empty one"),
        (write.gguf([("b", write.BOOL, True)], [], alignment=1)[:-1] + b"\2", "b: expected a byte 0 or 1, got 2"),
        (
            write.gguf(PAIRS, [TENSORS[1], TENSORS[1]]),
            "output.weight: expected one tensor of that name, got a second one",
        ),
        (write.gguf(PAIRS, [tensor("", GAIN)]), "tensor name: expected a name, got an empty one"),
        (write.gguf(PAIRS[1:], TENSORS), "general.architecture: expected a text, got none"),
        (write.gguf(PAIRS, [tensor("output.weight", GAIN)]), r"output.weight: expected shape \(vocabulary, width\)"),
        (
            write.gguf(PAIRS, [tensor("output.weight", WEIGHT, "I8")]),
            "output.weight: expected floating-point or quantised",
        ),
        (write.gguf(PAIRS, [*TENSORS, tensor("output.scale", GAIN[:1])]), "output.scale: expected no separate scale"),
        (
            write.gguf(PAIRS, [*TENSORS, tensor("output.bias", GAIN)]),
            r"output.bias: expected shape \(3,\), as the head",
        ),
    ],
)
def test_gguf_that_lies(octets: bytes, message: str, refused: Callable[[bytes, str, str], None]) -> None:
    refused(octets, ".gguf", message)


def test_gguf_with_deeply_nested_arrays(refused: Callable[[bytes, str, str], None]) -> None:
    nested: Any = (U8, [1])
    for _ in range(3):
        nested = (ARRAY, [nested])
    legal = write.gguf([("general.architecture", STRING, "x"), ("n", ARRAY, nested)], [])
    refused(legal, ".gguf", "output.weight: expected that tensor or")
    # One array of one array of one array ...
    deep = write.gguf([], [])[:16] + struct.pack("<Q", 1) + write.text("n") + struct.pack("<I", ARRAY)
    deep += struct.pack("<IQ", ARRAY, 1) * 100_000
    refused(deep, ".gguf", "n: expected arrays nested at most 4 deep, got deeper ones")


# --- safetensors: lies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [100_000_001, *HUGE])
def test_safetensors_with_a_huge_header(length: int, refused: Callable[[bytes, str, str], None], bounded: None) -> None:
    octets = struct.pack("<Q", length) + SAFETENSORS[8:]
    refused(octets, ".safetensors", f"header length: expected at most 100000000 bytes, got {length}")
    refused(
        struct.pack("<Q", 99_999_999) + SAFETENSORS[8:], ".safetensors", "header: expected 99999999 bytes at offset 8"
    )


ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [V, D], "data_offsets": [0, V * D * 4]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "F31"}, r"lm_head\.weight\.dtype: expected a dtype of the format, got F31"),
        ({"dtype": 32}, r"lm_head\.weight\.dtype: expected a dtype of the format, got a number"),
        ({"shape": 3}, r"lm_head\.weight\.shape: expected an array, got a number"),
        ({"shape": [V, -D]}, r"lm_head\.weight\.shape: expected integers from 0 to 2\*\*63 - 1, got -32"),
        ({"shape": [V, 32.0]}, r"lm_head\.weight\.shape: expected integers .*, got 32\.0"),
        ({"shape": [V, True]}, r"lm_head\.weight\.shape: expected integers .*, got True"),
        ({"shape": [V, None]}, r"lm_head\.weight\.shape: expected integers .*, got null"),
        ({"shape": [V, "32"]}, r"lm_head\.weight\.shape: expected integers .*, got a string"),
        ({"shape": [V, 2**63]}, r"lm_head\.weight\.shape: expected integers .*, got 9223372036854775808"),
        ({"shape": [V, 10**4000]}, r"lm_head\.weight\.shape: expected integers .*, got 1000"),
        ({"shape": [2**62, 2**62]}, r"lm_head\.weight\.data_offsets: expected .* bytes for .* of F32, got 384"),
        ({"shape": [2**62] * 32}, r"lm_head\.weight\.data_offsets: expected \d+\.\.\. bytes for "),
        ({"shape": [1] * 33}, r"lm_head\.weight\.shape: expected at most 32 dimensions, got 33"),
        ({"shape": [D, V + 1]}, r"lm_head\.weight\.data_offsets: expected 512 bytes for \[32, 4\] of F32, got 384"),
        (
            {"shape": [V, 2, 16]},
            r"lm_head\.weight: expected shape \(vocabulary, width\), neither 0, got shape \(3, 2, 1",
        ),
        ({"data_offsets": [0]}, r"lm_head\.weight\.data_offsets: expected a begin and an end not before it, got \[0\]"),
        ({"data_offsets": [384, 0]}, r"lm_head\.weight\.data_offsets: expected a begin and an end not before it"),
        ({"data_offsets": [1, 385]}, r"lm_head\.weight: expected data inside the file of \d+ bytes, got 384 bytes at"),
        ({"data_offsets": [2**62, 2**62 + 384]}, r"lm_head\.weight: expected data inside the file of"),
        (
            {"extra": 1},
            r"lm_head\.weight: expected dtype, shape and data_offsets, got data_offsets, dtype, extra, shape",
        ),
        (
            {"shape": [0, D], "data_offsets": [0, 0]},
            r"lm_head\.weight: expected shape .*, neither 0, got shape \(0, 32\)",
        ),
        (
            {"dtype": "F4", "shape": [1, 1], "data_offsets": [0, 1]},
            r".*data_offsets: expected 0\.5 bytes for \[1, 1\] of",
        ),
    ],
)
def test_safetensors_that_lie_about_a_tensor(
    changes: dict[str, Any], message: str, refused: Callable[[bytes, str, str], None]
) -> None:
    header = {"lm_head.weight": {**ENTRY, **changes}}
    refused(write.safetensors([tensor("", WEIGHT)], header=header), ".safetensors", message)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "header: expected JSON, got "),
        (b"[1]", "header: expected a JSON object, got an array"),
        (b"{}", r"lm_head\.weight: expected that tensor or an embedding tied to it, got neither"),
        (b'{"a": 1', "header: expected JSON, got "),
        (b'{"a": \xff}', "header: expected UTF-8, got byte 0xff"),
        (b'{"\xed\xa0\x80": 1}', "header: expected UTF-8, got byte 0xed"),
        (b'{"\\ud800": 1}', r"\\ud800: expected an object, got a number"),
        (b'{"a": {"x": NaN}}', "header: expected JSON with every name once and finite numbers, got NaN"),
        (b'{"a": {"x": -Infinity}}', "header: expected JSON with every name once and finite numbers, got -Infinity"),
        (
            b'{"a": {}, "b": {}, "a": {}}',
            "header: expected JSON with every name once and finite numbers, got 'a' twice",
        ),
        (b'{"a": {"b\\n": 1, "b\\n": 2}}', r"header: expected JSON with every .*, got 'b\\\\n' twice"),
        (b'{"a": {}}', "a: expected dtype, shape and data_offsets, got nothing"),
        (b'{"a": []}', "a: expected an object, got an array"),
        (b'{"a\\u0000\\n": []}', r"a\\x00\\n: expected an object, got an array"),
        (b'{"__metadata__": [1]}', "__metadata__: expected an object of strings, got something else"),
        (b'{"__metadata__": {"a": 1}}', "__metadata__: expected an object of strings, got something else"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "header: expected JSON, got brackets nested too deep"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "header: expected JSON, got brackets nested too deep"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "header: expected JSON, got an integer of thousands of digits"),
        (b'{"' + b"n" * 10**6 + b'": 1}', "n{77}\\.\\.\\.: expected an object, got a number"),
    ],
)
def test_safetensors_with_a_bad_header(header: bytes, message: str, refused: Callable[[bytes, str, str], None]) -> None:
    refused(write.safetensors([], header=header), ".safetensors", message)


def test_safetensors_that_overlap(refused: Callable[[bytes, str, str], None]) -> None:
    bias = {"dtype": "F32", "shape": [V], "data_offsets": [380, 392]}
    octets = write.safetensors(
        [tensor("", WEIGHT), tensor("", WEIGHT)], header={"lm_head.weight": ENTRY, "lm_head.bias": bias}
    )
    refused(octets, ".safetensors", r"lm_head\.bias: expected data of its own, got offset \d+, inside that of lm_head")


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([tensor("lm_head.bias", GAIN)], r"lm_head\.bias: expected shape \(3,\), as the head has, got shape \(32,\)"),
        (
            [tensor("norm.weight", GAIN[1:])],
            r"norm\.weight: expected shape \(32,\), as the head has, got shape \(31,\)",
        ),
        (
            [tensor("norm.weight", WEIGHT)],
            r"norm\.weight: expected shape \(32,\), as the head has, got shape \(3, 32\)",
        ),
        ([tensor("norm.weight", GAIN, "I8")], r"norm\.weight: expected F32, F16, BF16 or F64, got I8"),
    ],
)
def test_parts_that_do_not_fit(others: list[Tensor], message: str, refused: Callable[[bytes, str, str], None]) -> None:
    refused(write.safetensors([tensor("lm_head.weight", WEIGHT), *others]), ".safetensors", message)
