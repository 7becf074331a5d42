"""Conversations that go on on another machine: among a step's files in the store, and where the runtime looks (K1)."""

from __future__ import annotations

from windlass.ports import Call, Contact, Runner, SessionPlace, hooks_of

__all__ = ["bring_session", "keep_session"]


async def bring_session(runner: Runner, session: str, call: Call, contact: Contact) -> bool:
    """Have the conversation here as another machine left it; False if it is lost."""
    files, agent = contact.files, contact.step.agent
    if files is None or files == "here":
        return True
    place = _place(session, call)
    if agent is not None and (origin := agent.session_origin):
        place = place._replace(scratch=call.folder.parent / origin / "steps" / call.step)
    return await hooks_of(runner).bring_session(place, current=files == "brought")


async def keep_session(runner: Runner, session: str | None, call: Call, contact: Contact) -> None:
    """Have the conversation among the files that other machines get."""
    if contact.files is not None and session is not None:
        await hooks_of(runner).keep_session(_place(session, call))


def _place(session: str, call: Call) -> SessionPlace:
    return SessionPlace(session, call.workdir, call.scratch, call.variables)
