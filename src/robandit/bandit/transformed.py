"""A scikit-learn transformer in the place of `Features`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Floats
from robandit.inputs import as_floats, positive

CONSTANT = "(constant)"


class Transformed:
    """Vectors out of a fitted transformer: divided by the longest that may come, and a constant added.

    So no vector is longer than 1, whatever the transformer makes, and rewards that are never 0 on average are linear.
    """

    scaling = False
    action_bound = 1.0
    counts: Mapping[str, Mapping[str, int]] = {}

    def __init__(self, transformer: Any, longest: float) -> None:
        self._transformer, self.longest, self.id = transformer, positive("action_bound", longest), None
        try:
            names = list(map(str, transformer.get_feature_names_out()))
        except Exception as error:  # scikit-learn's NotFittedError, and whatever else a transformer raises
            raise ValueError(
                f"features must be Features or a fitted transformer with get_feature_names_out, got "
                f"{type(transformer).__name__}: {error}"
            ) from None
        self.names: tuple[str, ...] = (*names, CONSTANT)
        self.dim = len(self.names)

    def encode(self, candidates: Any, context: Any = None, source: Any = None) -> Floats:
        """The vectors (K, dim) of a decision set; context is added to each candidate as further columns."""
        if context is not None and not isinstance(context, Mapping):
            raise ValueError(f"context must be one dict for all candidates, got {type(context).__name__}")
        made = self._transformer.transform(self._ordered(self._joined(candidates, context)))
        rows = as_floats("what the transformer made", made.toarray() if hasattr(made, "toarray") else made)
        if rows.ndim != 2 or rows.shape[1] != self.dim - 1:
            raise ValueError(f"the transformer made an array {rows.shape}, but names {self.dim - 1} features")
        norms = np.sqrt(np.vecdot(rows, rows))
        if not (norms <= self.longest).all():
            place = int(np.flatnonzero(~(norms <= self.longest))[0])
            raise ValueError(
                f"candidate {place} has a vector of length {norms[place]:.4g}, and action_bound is {self.longest:g}: "
                "pass a larger action_bound, or end the transformer with sklearn.preprocessing.Normalizer()"
            )
        return np.concatenate([rows / self.longest, np.ones((len(rows), 1))], axis=1) / np.sqrt(2.0)

    def rows(self, frame: Any, *, decision: str | None = None) -> Floats:
        """The vectors (n, dim) of a long table."""
        return self.encode(frame)

    def explain(self, parameter: ArrayLike) -> dict[str, float]:
        """What a parameter means: the change in reward for one unit of each feature of the transformer."""
        units = np.full(self.dim, 1.0 / self.longest)
        units[-1] = 1.0
        return dict(zip(self.names, (np.asarray(parameter) * units / np.sqrt(2.0)).tolist(), strict=True))

    def _ordered(self, joined: Any) -> Any:
        """A frame with the columns that the transformer was fitted on alone, in the order that it insists on."""
        if not hasattr(self._transformer, "feature_names_in_") or not hasattr(joined, "columns"):
            return joined
        known = set(joined.columns)
        return joined[[name for name in self._transformer.feature_names_in_ if name in known]]

    def _joined(self, candidates: Any, context: Any) -> Any:
        """The candidates as the transformer was fitted: a frame if it was fitted on one, or else as they are."""
        if isinstance(candidates, Sequence) and all(isinstance(one, Mapping) for one in candidates):
            candidates = [{**(context or {}), **one} for one in candidates]
            if not hasattr(self._transformer, "feature_names_in_"):
                return candidates
            from pandas import DataFrame  # which the transformer was fitted with

            return DataFrame(candidates)
        if not context:
            return candidates
        if hasattr(candidates, "with_columns"):  # polars
            from polars import lit

            return candidates.with_columns(**{name: lit(value) for name, value in context.items()})
        if not hasattr(candidates, "assign"):
            raise ValueError("context needs candidates with names: pass dicts or a frame")
        return candidates.assign(**context)
