"""What every contest of one run shares: sizes or reduced sizes, who takes part, threads, the weights in memory.

Knows: only these. Refuses to know: operations and clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import lmhead_native as native
from bench.peers import installed
from bench.shapes import Weights


@dataclass
class Setting:
    """The conditions of a run.

    Attributes
    ----------
    reduced : bool
        Small sizes and short measurements, to see that everything works.
    peers : tuple of str
        Who takes part besides ours.
    threads : int
        Of everyone.
    weights : Weights
        The weights that are in memory.
    """

    reduced: bool = False
    peers: tuple[str, ...] = field(default_factory=installed)
    threads: int = field(default_factory=native.get_num_threads)
    weights: Weights = field(default_factory=Weights)
