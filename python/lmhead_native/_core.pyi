# The compiled core. Arguments are positional, those of losses and scores after their arrays by keyword; python modules
# beside it hold signatures, defaults and docstrings.
from collections.abc import Collection
from typing import Any

from numpy.typing import NDArray

from ._typing import AllowedIds, Array, Ids, Result, Weight

__version__: str

def logits(
    hidden: Array,
    weight: Weight,
    bias: Array | None,
    softcap: float | None,
    scale: float | None,
    mask: Array | None,
    allowed_ids: AllowedIds | None,
    out: Result | None,
    threads: int | None,
    /,
) -> Result: ...
def logits_topk(
    hidden: Array,
    weight: Weight,
    k: int,
    bias: Array | None,
    softcap: float | None,
    scale: float | None,
    mask: Array | None,
    allowed_ids: AllowedIds | None,
    vocab_ids: Array | None,
    threads: int | None,
    /,
) -> tuple[Result, Ids]: ...
def topk(logits: Array, k: int, threads: int | None, /) -> tuple[Result, Ids]: ...
def logits_sample(
    hidden: Array, weight: Weight, /, **given: Any
) -> tuple[Ids, Result | None, Ids | None, Result | None]: ...
def sample(logits: Array, /, **given: Any) -> tuple[Ids, Result | None, Ids | None, Result | None]: ...
def screened_sample(
    screen: Screen, hidden: Array, weight: Weight, /, **given: Any
) -> tuple[Ids, Result | None, Ids | None, Result | None]: ...
def philox(c0: int, c1: int, c2: int, c3: int, key_low: int, key_high: int, /) -> tuple[int, int, int, int]: ...
def noise_bits(seed: int, position: int, id: int, /) -> int: ...
def seed_of_row(seed: int, row: int, /) -> int: ...
def gumbel(bits: int, /) -> float: ...
def softmax(logits: Array, temperature: float, out: Result | None, threads: int | None, /) -> Result: ...
def log_softmax(logits: Array, temperature: float, out: Result | None, threads: int | None, /) -> Result: ...
def logsumexp(logits: Array, temperature: float, out: Result | None, threads: int | None, /) -> Result: ...
def cross_entropy(
    logits: Array,
    targets: Array,
    /,
    *,
    bias: Array | None,
    class_weight: Array | None,
    token_weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    softcap: float | None,
    scale: float | None,
    temperature: float,
    lse_square_scale: float,
    shift: int,
    empty: str,
    num_items: float | None,
    stats: bool,
    threads: int | None,
) -> Any: ...
def cross_entropy_with_grad(
    logits: Array,
    targets: Array,
    /,
    *,
    bias: Array | None,
    class_weight: Array | None,
    token_weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    softcap: float | None,
    scale: float | None,
    temperature: float,
    lse_square_scale: float,
    shift: int,
    empty: str,
    num_items: float | None,
    stats: bool,
    grad_output: Array | None,
    dlogits_out: Result | None,
    accumulate: bool,
    threads: int | None,
) -> tuple[Any, Result]: ...
def linear_cross_entropy(
    hidden: Array,
    weight: Weight,
    targets: Array,
    /,
    *,
    bias: Array | None,
    class_weight: Array | None,
    token_weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    softcap: float | None,
    scale: float | None,
    temperature: float,
    lse_square_scale: float,
    shift: int,
    empty: str,
    num_items: float | None,
    chunk_rows: int | None,
    filter_eps: float | None,
    stats: bool,
    threads: int | None,
) -> Any: ...
def linear_cross_entropy_with_grad(
    hidden: Array,
    weight: Weight,
    targets: Array,
    /,
    *,
    bias: Array | None,
    class_weight: Array | None,
    token_weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    softcap: float | None,
    scale: float | None,
    temperature: float,
    lse_square_scale: float,
    shift: int,
    empty: str,
    num_items: float | None,
    chunk_rows: int | None,
    filter_eps: float | None,
    stats: bool,
    grad_output: Array | None,
    wrt: Collection[str],
    dhidden_out: Result | None,
    dweight_out: Result | None,
    dbias_out: Result | None,
    accumulate: bool,
    threads: int | None,
) -> tuple[Any, Result | None, Result | None, Result | None]: ...
def logits_scores(
    hidden: Array,
    weight: Weight,
    targets: Array | None,
    /,
    *,
    bias: Array | None,
    softcap: float | None,
    scale: float | None,
    mask: Array | None,
    allowed_ids: AllowedIds | None,
    vocab_ids: Array | None,
    temperature: float,
    ignore_index: int,
    shift: int,
    top_n: int,
    chosen: Array | None,
    threads: int | None,
) -> tuple[Result | None, Result, Ids | None, Result, Ids, Result | None, Ids | None, Result | None]: ...
def scores(
    logits: Array,
    targets: Array | None,
    /,
    *,
    mask: Array | None,
    allowed_ids: AllowedIds | None,
    temperature: float,
    ignore_index: int,
    shift: int,
    top_n: int,
    chosen: Array | None,
    threads: int | None,
) -> tuple[Result | None, Result, Ids | None, Result, Ids, Result | None, Ids | None, Result | None]: ...
def layer_norm(
    x: Array, gain: Array | None, bias: Array | None, eps: float, out: Result | None, threads: int | None, /
) -> Result: ...
def rms_norm(x: Array, gain: Array | None, eps: float, out: Result | None, threads: int | None, /) -> Result: ...

class StoredWeight:
    @property
    def __lmhead_weight__(self) -> StoredWeight: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def is_quantized(self) -> bool: ...
    @property
    def stored(self) -> NDArray[Any]: ...
    def dequantize(self) -> NDArray[Any]: ...
    def gather(self, ids: Array, /) -> NDArray[Any]: ...

def quantize(
    weight: Weight, bits: int, group_size: int | None, half_scales: bool, threads: int | None, /
) -> tuple[NDArray[Any], NDArray[Any], int, int, int | None]: ...
def quantized_weight(
    values: NDArray[Any], scales: NDArray[Any], width: int, bits: int, group: int, /
) -> StoredWeight: ...
def q8_0_weight(blocks: NDArray[Any], /) -> StoredWeight: ...
def bfloat16_weight(bits: NDArray[Any], /) -> StoredWeight: ...
def bfloat16_bits(values: NDArray[Any], /) -> NDArray[Any]: ...
def isa() -> str: ...
def compiled_isas() -> list[str]: ...
def usable_isas() -> list[str]: ...
def use_isa(name: str, /) -> None: ...
def config() -> dict[str, Any]: ...
def cpu_features() -> dict[str, bool]: ...
def get_num_threads() -> int: ...
def set_num_threads(n: int, /) -> None: ...
def check_threads(threads: int | None, /) -> int: ...

SCREEN_WIDTH: int

class Screen:
    def __init__(self, weight: Weight, threads: int | None = ...) -> None: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int: ...

def screened_topk(
    screen: Screen,
    hidden: Array,
    weight: Weight,
    k: int,
    bias: Array | None,
    softcap: float | None,
    scale: float | None,
    mask: Array | None,
    allowed_ids: AllowedIds | None,
    vocab_ids: Array | None,
    threads: int | None,
    /,
) -> tuple[Result, Ids, Ids]: ...
def screen_ends(
    screen: Screen, hidden: Array, lower: bool = ..., threads: int | None = ...
) -> tuple[Result, Result]: ...
def screen_pass_seconds(screen: Screen, hidden: Array, rounds: int = ..., threads: int | None = ...) -> list[float]: ...
def weight_facts(weight: Weight, /) -> tuple[int, int, str, int]: ...
def prepared_copy(weight: Weight, threads: int | None = ...) -> Any: ...
def gather(weight: Weight, ids: Array, /) -> Result: ...
def kept_vector(name: str, object: Array, doubles: bool = ...) -> NDArray[Any]: ...
def last_level_cache_bytes() -> int: ...
def read_bandwidth(array: NDArray[Any], seconds: float = ..., threads: int | None = ...) -> float: ...
def fma_peak(kind: str = ..., seconds: float = ..., threads: int | None = ...) -> float: ...

# For tests: of each row the ids that are kept, the greatest logit, the mass relative to it, whether that was a list,
# and whether the best sufficed. `given`: mask, allowed_ids, the filters and edits of `sample`, threads.
def kept_ids(logits: Array, from_best: bool = False, **given: Any) -> list[tuple[Ids, float, float, bool, bool]]: ...

# float64 of the shape of logits: what a draw is made from, 0 where an id is not kept. `given` as above.
def processed_probabilities(logits: Array, name: str = "logits", **given: Any) -> NDArray[Any]: ...

# Of float64 numbers >= 0, as draws and losses take it.
def logarithms(numbers: Array, threads: int | None = None) -> NDArray[Any]: ...
