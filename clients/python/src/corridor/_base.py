"""The base class of all response models."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """An object as returned by the API.

    The API may add fields within a version: they are kept and do not cause an error. Older API
    versions have rates and fees as numbers, which are read as the text sent and never as floats.
    """

    model_config = ConfigDict(
        extra="allow", frozen=True, coerce_numbers_to_str=True, protected_namespaces=()
    )
