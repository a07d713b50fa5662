"""The base of every response's schema, and the error envelope."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class View(BaseModel):
    """What the documentation shows of a response. The kernel makes the bodies; the tests hold both
    together."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", serialize_by_alias=True)


class ErrorBody(View):
    """code: one of the error table; message: for people; requestId: as in the X-Request-Id header."""

    code: str
    message: str
    request_id: str


class Error(View):
    """The one shape of every refusal and failure."""

    error: ErrorBody
