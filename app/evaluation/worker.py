"""Judges turns that wait for their score: by rules, by the score of the same turn, or by the model."""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from app.clock import Clock
from app.database.engine import Database, WriteSession
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.dialogues import store as dialogue_store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.preparation import prepare
from app.dialogues.records import Dialogue, DialogueChange, NewDialogue, PreparedDialogue
from app.dialogues.text import normalize_text
from app.errors import ProviderError, UnavailableError
from app.evaluation import store
from app.evaluation.evaluator import Evaluator
from app.evaluation.evaluator_prompt import Turn as Exchange
from app.evaluation.retention import Retention, expires_at, retention_of
from app.evaluation.store import TurnCounts, Verdict
from app.evaluation.turns import Outcome, Turn
from app.evaluation.value_filter import judge
from app.telemetry import Metrics, get_logger
from app.tiers import store as tier_store

log = get_logger(__name__)

_MOST_ATTEMPTS = 6
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 60.0
_REUSED_FOR = timedelta(days=30)
_ABANDONED_AFTER = timedelta(minutes=2)
_ABANDONED_EVERY_S = 30.0


class EvaluationWorker:
    """The background loop that scores turns and stores what is worth keeping."""

    def __init__(
        self,
        *,
        database: Database,
        evaluator: Evaluator | None,
        pipeline: EmbeddingPipeline,
        clock: Clock,
        metrics: Metrics,
        concurrency: int,
        batch_size: int,
    ) -> None:
        """Start nothing; `run` is the loop.

        Args:
            database: where the turns are.
            evaluator: None: evaluation is switched off, and every turn is kept.
            pipeline: is told of what is stored.
            clock: what time it is.
            metrics: where outcomes are counted.
            concurrency: how many calls to the evaluator there are at once.
            batch_size: how many turns of a backlog go in one call.
        """
        self._database = database
        self._evaluator = evaluator
        self._pipeline = pipeline
        self._clock = clock
        self._metrics = metrics
        self._batch_size = batch_size
        self._loop = WorkLoop("evaluation", self._work_once, workers=concurrency)

    def wake(self) -> None:
        """Tell the loop that a turn was answered."""
        self._loop.wake()

    async def run(self) -> None:
        """Judge turns until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            group.create_task(self._keep_abandoned_forever())

    async def counts(self, namespace: str | None = None) -> TurnCounts:
        """Turns in numbers, of one namespace or of all."""
        async with self._database.read() as session:
            return await store.count_turns(session, namespace)

    async def _keep_abandoned_forever(self) -> None:
        while True:
            await asyncio.sleep(_ABANDONED_EVERY_S)
            with suppress(UnavailableError):
                await self.keep_abandoned()

    async def keep_abandoned(self) -> None:
        """Keep the users' messages of turns whose answering process died and that nobody asked for again."""
        now = self._clock()
        async with self._database.transaction() as session:
            for turn in await store.claim_abandoned(session, before=now - _ABANDONED_AFTER):
                log.warning("turn was never answered, its message is kept", turn_id=turn.turn_id)
                await keep_unanswered(session, turn, now=now)

    async def _work_once(self) -> bool:
        async with self._database.transaction() as session:
            turns = await store.claim_turns(session, limit=self._batch_size, lease_s=LEASE_S)
        if not turns:
            return False
        ids = [turn.turn_id for turn in turns]
        async with holding(self._database, lambda session, s: store.postpone_turns(session, ids, seconds=s)):
            asked = [turn for turn in turns if not await self._judge_without_call(turn)]
            await self._judge_by_model(asked)
        return True

    async def _judge_without_call(self, turn: Turn) -> bool:
        """Judge a turn by the value filter or by the score of the same turn; whether that was possible."""
        if self._evaluator is None:
            await self._record(turn, None, "disabled")
            return True
        judgement = judge(turn.user_content, turn.reply or "")
        if judgement is not None:
            await self._record(turn, judgement.score, "filtered")
            return True
        since = self._clock() - _REUSED_FOR
        async with self._database.read() as session:
            known = await store.find_score(session, turn.namespace, turn_hash(turn), since=since)
        if known is not None:
            await self._record(turn, known, "cached")
            return True
        return False

    async def _judge_by_model(self, turns: list[Turn]) -> None:
        if self._evaluator is None or not turns:
            return
        if len(turns) > 1:
            scores = await self._ask_for_all(self._evaluator, turns)
            if scores is not None:
                for turn, score in zip(turns, scores, strict=True):
                    await self._record(turn, score, "scored")
                return
        for turn in turns:
            try:
                score = await self._evaluator.evaluate(_exchange(turn))
            except ProviderError as error:
                await self._put_off(turn, error)
            else:
                await self._record(turn, score, "scored")

    @staticmethod
    async def _ask_for_all(evaluator: Evaluator, turns: list[Turn]) -> list[int] | None:
        try:
            return await evaluator.evaluate_batch([_exchange(turn) for turn in turns])
        except ProviderError as error:
            # One by one each turn has its own tries.
            log.debug("batch evaluation failed", reason=str(error), turns=len(turns))
            return None

    async def _put_off(self, turn: Turn, error: ProviderError) -> None:
        """Try again later, longer each time; for good, keep the turn in full."""
        if turn.attempts >= _MOST_ATTEMPTS:
            log.warning("evaluation given up, turn kept in full", turn_id=turn.turn_id, reason=str(error))
            await self._record(turn, None, "failed")
            return
        wait_s = min(_FIRST_WAIT_S * 2 ** (turn.attempts - 1), _LONGEST_WAIT_S)
        wait_s = max(wait_s, min(error.retry_after_s or 0.0, _LONGEST_WAIT_S))
        log.info("evaluation put off", turn_id=turn.turn_id, reason=str(error), wait_s=wait_s)
        async with self._database.transaction() as session:
            await store.postpone_turns(session, [turn.turn_id], seconds=wait_s)

    async def _record(self, turn: Turn, score: int | None, outcome: Outcome) -> None:
        """Store the verdict, and the two messages where it keeps them, in one transaction; once."""
        retention = None if score is None else retention_of(score)
        ends = None if score is None else expires_at(score, turn.created_at)
        now = self._clock()
        async with self._database.transaction() as session:
            if not await store.lock_waiting_turn(session, turn.turn_id):
                return
            kept: list[Dialogue] = []
            if retention is not Retention.NONE:
                kept = await _keep_messages(
                    session,
                    turn.namespace,
                    turn.turn_id,
                    [
                        _user_message(turn, score=score, ends=ends),
                        _reply_message(turn, score=score, ends=ends),
                    ],
                    now=now,
                )
                await tier_store.link_window_messages(
                    session, turn.turn_id, user_dialogue_id=kept[0].id, assistant_dialogue_id=kept[1].id
                )
            verdict = Verdict(
                status="unscored" if score is None else "scored",
                outcome=outcome,
                score=score,
                retention=retention,
                expires_at=ends,
                user_dialogue_id=kept[0].id if kept else None,
                assistant_dialogue_id=kept[1].id if kept else None,
                turn_hash=turn_hash(turn),
            )
            await store.judge_turn(session, turn.turn_id, verdict, now=now)
        self._count(score, outcome, retention)
        log.info("turn judged", turn_id=turn.turn_id, score=score, retention=retention, outcome=outcome)
        if kept:
            self._pipeline.wake()

    def _count(self, score: int | None, outcome: Outcome, retention: str | None) -> None:
        if outcome != "disabled":
            self._metrics.evaluations.labels(outcome).inc()
        if score is not None:
            self._metrics.evaluation_score.observe(score)
        self._metrics.turns.labels(retention or "unscored").inc()


async def keep_unanswered(session: WriteSession, turn: Turn, *, now: datetime) -> None:
    """Keep the user's message of a turn that got no answer, in full, since there is no turn to judge."""
    # Where the turn was erased, or answered, meanwhile, nothing is to be kept.
    if not await store.fail_turn(session, turn.turn_id):
        return
    message = _user_message(turn, score=None, ends=None)
    kept = (await _keep_messages(session, turn.namespace, turn.turn_id, [message], now=now))[0]
    await store.note_user_dialogue(session, turn.turn_id, kept.id)
    await tier_store.link_window_messages(
        session, turn.turn_id, user_dialogue_id=kept.id, assistant_dialogue_id=None
    )


async def _keep_messages(
    session: WriteSession,
    namespace: str,
    turn_id: str,
    messages: list[NewDialogue],
    *,
    now: datetime,
) -> list[Dialogue]:
    """Store messages of a turn, in order; one that is there already gets their score and expiry."""
    kept = []
    for item in prepare(messages, now=now):
        stored = await dialogue_store.insert_dialogues(session, namespace, [item], now=now, live_since=None)
        kept.append(stored[0] if stored else await _take_over(session, namespace, turn_id, item, now=now))
    return kept


async def _take_over(
    session: WriteSession, namespace: str, turn_id: str, item: PreparedDialogue, *, now: datetime
) -> Dialogue:
    """The stored message with this uuid: posted by the bot itself, or kept when the model failed."""
    there = (await dialogue_store.find_by_uuid(session, namespace, [item.message_uuid]))[item.message_uuid]
    if (there.written_hash, there.dialogue.session) != (item.written_hash, item.session):
        # The uuid is another message's: this one must not be lost for it.
        own = replace(item, message_uuid=f"{turn_id}:message")
        return (await dialogue_store.insert_dialogues(session, namespace, [own], now=now, live_since=None))[0]
    changed = await dialogue_store.update_dialogue(
        session,
        namespace,
        there.dialogue.id,
        DialogueChange(score=item.score, expires_at=item.expires_at),
        now=now,
        token_count=None,
        terms=None,
    )
    return changed or there.dialogue


def _user_message(turn: Turn, *, score: int | None, ends: datetime | None) -> NewDialogue:
    """The user's half of a turn."""
    return NewDialogue(
        user_id=turn.session.user_id,
        group_id=turn.session.group_id,
        role="user",
        content=turn.user_content,
        sender_name=turn.sender_name,
        message_id=turn.message_id,
        message_uuid=turn.message_uuid,
        created_at=turn.created_at,
        score=score,
        expires_at=ends,
    )


def _reply_message(turn: Turn, *, score: int | None, ends: datetime | None) -> NewDialogue:
    return NewDialogue(
        user_id=turn.session.user_id,
        group_id=turn.session.group_id,
        role="assistant",
        content=turn.reply or "",
        sender_name=turn.assistant_name,
        message_uuid=f"{turn.turn_id}:reply",
        created_at=turn.replied_at,
        score=score,
        expires_at=ends,
    )


def _exchange(turn: Turn) -> Exchange:
    return Exchange(turn.user_content, turn.reply or "")


def turn_hash(turn: Turn) -> int:
    """64 signed bits, the same for turns that differ in case, width, blanks and punctuation only."""
    parts = (_plain(turn.user_content), _plain(turn.reply or ""))
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _plain(text: str) -> str:
    folded = normalize_text("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())
