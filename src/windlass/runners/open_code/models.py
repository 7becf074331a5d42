"""Models by the names that OpenCode has for them: `provider/model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windlass.errors import Failure
from windlass.runners.endings import Ending, failure
from windlass.runners.open_code.failures import LOGIN, NAME

if TYPE_CHECKING:
    from windlass.runners.open_code.server import Server

__all__ = ["Model", "Unknown", "find_model"]


class Model(NamedTuple):
    provider: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


class Unknown(NamedTuple):
    failure: Failure


async def find_model(server: Server, directory: str, asked: str) -> Model | Unknown:
    """The model of that name; a name without a provider is looked for among the providers that are set up."""
    provider, slash, model = asked.partition("/")
    answer = await server.call("GET", "/config/providers", directory=directory)
    if answer.status_code != 200:
        return Model(provider, model) if slash else _unknown(asked, ())
    providers = answer.json().get("providers") or []
    known = [Model(str(one.get("id")), str(name)) for one in providers for name in one.get("models") or ()]
    if slash:
        return Model(provider, model) if Model(provider, model) in known else _unknown(asked, known)
    found = [one for one in known if one.model == asked]
    return found[0] if found else _unknown(asked, known)


def _unknown(asked: str, known: tuple[Model, ...] | list[Model]) -> Unknown:
    some = ", ".join(one.name for one in known[:5]) or f"none: {LOGIN}"
    advice = (f"models that are set up: {some}", "opencode models lists them all")
    return Unknown(failure(Ending.NO_MODEL, f"OpenCode has no model {asked!r} here", runtime=NAME, advice=advice))
