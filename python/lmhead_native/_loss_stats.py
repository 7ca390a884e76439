"""What a loss can say besides its value: `LossStats`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._typing import Ids, Result


class _Fields(NamedTuple):
    loss: Any
    per_token: Result
    logsumexp: Result
    z_loss: Any
    argmax: Ids
    accuracy: np.float64
    entropy: Result


class LossStats(_Fields):
    """A loss with what its computation saw; unpacks into the seven below, `skipped_mass` is an attribute only.

    A position is counted if its target is not ignored and its token weight is not 0. "The loss's shape" is that of the
    loss under ``reduction="none"``: the targets' shape, less `shift` columns. float64 for float64 operands, else
    float32, if no other dtype is named.

    Attributes
    ----------
    loss : scalar or ndarray
        As without stats.
    per_token : ndarray of the loss's shape
        The loss under ``reduction="none"``, weights and z-loss included; 0 where not counted.
    logsumexp : ndarray of the loss's shape
        Of the final logits, after the temperature; NaN where not counted.
    z_loss : scalar or ndarray
        The part of `loss` that `lse_square_scale` is responsible for, reduced as the loss is.
    argmax : ndarray of int64, of the loss's shape
        The best token, the lower id of equals, the first NaN if there is one; -1 where not counted.
    accuracy : float64
        The share of counted positions whose argmax is the target (of probabilities: their own first maximum). No
        weights enter. With nothing counted NaN, or 0 with ``empty="zero"``.
    entropy : ndarray of the loss's shape
        ``-sum p log p`` of the final logits, in nats; NaN where not counted.
    skipped_mass : float64
        The largest sum over one position of the ``|p - y|`` that `filter_eps` left out of the gradients; 0 without it.
    """

    skipped_mass: np.float64 = np.float64(0)

    @classmethod
    def of(cls, fields: Any) -> LossStats:
        """Return the stats of the seven fields and the skipped mass, in a row."""
        *named, mass = fields
        return cls(*named).with_skipped_mass(mass)

    def with_skipped_mass(self, mass: float) -> LossStats:
        """Return the same stats with another skipped mass."""
        stats = LossStats(*self)
        stats.skipped_mass = np.float64(mass)
        return stats
