"""What every model of an answer has in common."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """An object of the API, as it was answered.

    Within a version the API may add fields: they are kept and are no error. An older API version
    has rates and fees as numbers; they are read as the text that was sent and never as a float.
    """

    model_config = ConfigDict(
        extra="allow", frozen=True, coerce_numbers_to_str=True, protected_namespaces=()
    )
