"""From tables and records to the feature vectors that a linear model sees, and back to names."""

from robandit.features.columns import Boolean, Categorical, Growing, Hashed, Numeric
from robandit.features.features import Features
from robandit.features.scaling import Scaling

__all__ = ["Boolean", "Categorical", "Features", "Growing", "Hashed", "Numeric", "Scaling"]
