"""Erasure: everything of a session, or of a user, at once and for good."""

from dataclasses import asdict

from sqlalchemy.exc import DBAPIError

from app.access.audit_store import Action, Deed, record_deed
from app.access.callers import PROGRAM, Actor
from app.database.deadlocks import is_deadlock
from app.database.engine import Database
from app.dialogues import store as dialogue_store
from app.dialogues.records import Erased, Session
from app.errors import UnavailableError
from app.evaluation import store as evaluation_store
from app.telemetry import get_logger
from app.tiers import store as tier_store
from app.tiers import summary_store
from app.tiers.summary_service import SummaryService

log = get_logger(__name__)

_TRIES = 5


class ErasureService:
    """Erases; what is in flight finds nothing to come back to. The audit log tells who did it."""

    def __init__(self, *, database: Database, summaries: SummaryService) -> None:
        self._database = database
        self._summaries = summaries

    async def erase_session(self, namespace: str, of: Session, *, by: Actor = PROGRAM) -> Erased:
        """Delete everything of a session."""
        return await self._erase(namespace, of, by)

    async def erase_user(self, namespace: str, user_id: int, *, by: Actor = PROGRAM) -> Erased:
        """Delete everything of a user, in private and in every group."""
        return await self._erase(namespace, user_id, by)

    async def _erase(self, namespace: str, of: Session | int, by: Actor) -> Erased:
        erased = await self._erase_patiently(namespace, of, by)
        self._summaries.forget(namespace, of)
        log.info(
            "erased",
            dialogues=erased.dialogues,
            window_messages=erased.window_messages,
            summaries=erased.summaries,
            turns=erased.turns,
        )
        return erased

    async def _erase_patiently(self, namespace: str, of: Session | int, by: Actor) -> Erased:
        for _ in range(_TRIES):
            try:
                return await self._erase_once(namespace, of, by)
            except DBAPIError as error:
                # Who writes, erases or sweeps the same messages at once may lock them in another order.
                if not is_deadlock(error):
                    raise
        raise UnavailableError("the same messages are being written and erased at once", retry_after_s=1)

    async def _erase_once(self, namespace: str, of: Session | int, by: Actor) -> Erased:
        async with self._database.transaction() as session:
            # Turns first: who judges or answers one holds its row, and stores nothing once it is gone.
            turns = await evaluation_store.erase_turns(session, namespace, of)
            dialogues = await dialogue_store.erase_dialogues(session, namespace, of)
            window_messages = await tier_store.erase_window(session, namespace, of)
            summaries = await summary_store.erase_summaries(session, namespace, of)
            # A summary that was being stored is there now: its window was waited for. A message that came
            # meanwhile stays, in the record as in the window.
            await dialogue_store.erase_dialogues(session, namespace, of, only_summaries=True)
            erased = Erased(dialogues, window_messages, summaries, turns)
            await record_deed(session, _as_deed(namespace, of, erased), by=by)
        return erased


def _as_deed(namespace: str, of: Session | int, erased: Erased) -> Deed:
    if isinstance(of, Session):
        user_id, group_id = of.user_id, of.group_id
    else:
        user_id, group_id = of, None
    action: Action = "session_erased" if isinstance(of, Session) else "user_erased"
    return Deed(action, namespace, user_id=user_id, group_id=group_id, counts=asdict(erased))
