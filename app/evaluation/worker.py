"""Judges turns that wait for their score: by rules, by the score of the same turn, or by the model."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.clock import Clock, monotonic_s
from app.database.engine import Database, WriteSession
from app.database.work_loop import LEASE_S, WorkLoop, holding
from app.dialogues.embedding import EmbeddingPipeline
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
    TemporalMemoryError,
)
from app.evaluation import counts_store, store
from app.evaluation.counts_store import QueueFacts, TurnCounts
from app.evaluation.evaluator import Evaluator
from app.evaluation.evaluator_prompt import Turn as Exchange
from app.evaluation.keeping_store import keep_early, keep_unanswered, record_verdict
from app.evaluation.outage import EvaluatorAwayError, Outage
from app.evaluation.retention import Retention, expires_at, retention_of
from app.evaluation.store import Verdict
from app.evaluation.turns import Outcome, Turn, turn_hash
from app.evaluation.value_filter import judge
from app.telemetry import Metrics, get_logger

log = get_logger(__name__)

# For answers that nobody can read: about half a minute in all.
_MOST_ATTEMPTS = 6
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
# Somebody has to pay a bill or start a machine.
_OUTAGE_PATIENCE = timedelta(hours=24)
# An evaluator in order has answered by then; what waits longer is to be found meanwhile.
_KEPT_EARLY_AFTER = timedelta(seconds=10)
_KEPT_EARLY_EVERY_S = 2.0
_KEPT_EARLY_AT_ONCE = 100
_REUSED_FOR = timedelta(days=30)
_ABANDONED_AFTER_S = 120.0
_ABANDONED_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """Turns that this worker has taken; each leaves `held` when it is judged or put off."""

    held: set[str]


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
        self._outage = Outage(monotonic_s)
        self._loop = WorkLoop("evaluation", self.work_once, workers=concurrency)
        self._waiting = WorkLoop("waiting turns", self.keep_waiting, poll_s=_KEPT_EARLY_EVERY_S)
        self._abandoned = WorkLoop("abandoned turns", self.keep_abandoned, poll_s=_ABANDONED_EVERY_S)

    def wake(self) -> None:
        """Tell the loop that a turn was answered."""
        self._loop.wake()

    async def run(self) -> None:
        """Judge turns until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            group.create_task(self._waiting.run())
            group.create_task(self._abandoned.run())

    async def counts(self, namespace: str | None = None) -> TurnCounts:
        """Turns in numbers, of one namespace or of all."""
        async with self._database.read() as session:
            return await counts_store.count_turns(session, namespace)

    async def queue_facts(self) -> QueueFacts:
        """How many turns wait for their score, and how long the oldest has waited."""
        async with self._database.read() as session:
            return await counts_store.read_queue_facts(session)

    async def keep_abandoned(self, *, after_s: float = _ABANDONED_AFTER_S) -> bool:
        """Keep the users' messages of turns whose answering process died and that nobody asked for again.

        Returns:
            Whether there were any.
        """
        now = self._clock()
        async with self._database.transaction() as session:
            abandoned = await store.lock_abandoned(session, after_s=after_s)
            for turn in abandoned:
                log.warning("turn was never answered, its message is kept", turn_id=turn.turn_id)
                await keep_unanswered(session, turn, now=now)
        return bool(abandoned)

    async def keep_waiting(self, *, after: timedelta = _KEPT_EARLY_AFTER) -> bool:
        """Store, without a score yet, the messages of turns that have waited long for theirs.

        Returns:
            Whether there were any.
        """
        async with self._database.read() as reading:
            waiting = await store.find_waiting_long(
                reading, before=self._clock() - after, limit=_KEPT_EARLY_AT_ONCE
            )
        for turn_id in waiting:
            try:
                async with self._database.transaction() as session:
                    await keep_early(session, turn_id, now=self._clock())
            except TemporalMemoryError:
                raise
            except Exception:
                log.exception("waiting turn not kept", turn_id=turn_id)
                # Its verdict tries again; here it must not come again and again.
                async with self._database.transaction() as session:
                    await store.note_kept_early(
                        session, turn_id, user_dialogue_id=None, assistant_dialogue_id=None
                    )
        if waiting:
            self._pipeline.wake()
        return bool(waiting)

    async def work_once(self) -> bool:
        """Judge some turns that wait; whether there were any."""
        state = self._outage.state
        async with self._database.transaction() as session:
            turns = await store.claim_turns(
                session,
                limit=1 if state == "to_be_tried" else self._batch_size,
                lease_s=LEASE_S,
                # Rules judge what is new all the same; what has waited for so long is given up.
                given_up_before=self._patience_began() if state == "away" else None,
            )
        if not turns:
            return False
        claim = _Claim({turn.turn_id for turn in turns})

        async def extend(session: WriteSession, seconds: float) -> None:
            await store.postpone_turns(session, sorted(claim.held), seconds=seconds)

        async with holding(self._database, extend):
            asked = [turn for turn in turns if not await self._judge_without_call(turn, claim)]
            if self._evaluator is not None and asked:
                await self._judge_by_model(self._evaluator, asked, claim)
        return True

    def _patience_began(self) -> datetime:
        return self._clock() - _OUTAGE_PATIENCE

    async def _judge_without_call(self, turn: Turn, claim: _Claim) -> bool:
        """Judge a turn by the value filter or by the score of the same turn; whether that was possible."""
        if self._evaluator is None:
            await self._settle(turn, claim, None, "disabled")
            return True
        judgement = judge(turn.user_content, turn.reply or "")
        if judgement is not None:
            await self._settle(turn, claim, judgement.score, "filtered")
            return True
        since = self._clock() - _REUSED_FOR
        async with self._database.read() as session:
            known = await store.find_score(session, turn.namespace, self._hash(turn), since=since)
        if known is not None:
            await self._settle(turn, claim, known, "cached")
            return True
        return False

    async def _judge_by_model(self, evaluator: Evaluator, turns: list[Turn], claim: _Claim) -> None:
        """Judge turns by one call, or, where its answer does not fit, one by one."""
        if len(turns) > 1:
            try:
                with self._outage.asking():
                    scores = await evaluator.evaluate_batch([_exchange(turn) for turn in turns])
            except ProviderError as error:
                if self._is_outage(error):
                    await self._wait_for_end(turns, claim, error)
                    return
                log.info("batch evaluation failed", reason=str(error), turns=len(turns))
                scores = None
            if scores is not None:
                for turn, score in zip(turns, scores, strict=True):
                    await self._settle(turn, claim, score, "scored")
                return
        await self._judge_one_by_one(evaluator, turns, claim)

    async def _judge_one_by_one(self, evaluator: Evaluator, turns: list[Turn], claim: _Claim) -> None:
        for place, turn in enumerate(turns):
            try:
                with self._outage.asking():
                    score = await evaluator.evaluate(turn.user_content, turn.reply or "")
            except ProviderError as error:
                if self._is_outage(error):
                    # It is the provider's fault, not this turn's: the others would fare no better.
                    await self._wait_for_end(turns[place:], claim, error)
                    return
                await self._put_off(turn, claim, error)
            else:
                await self._settle(turn, claim, score, "scored")

    def _is_outage(self, error: ProviderError) -> bool:
        return self._outage.state != "reachable" and isinstance(
            error, EvaluatorAwayError | ProviderBusyError | ProviderDeniedError | ProviderTimeoutError
        )

    async def _wait_for_end(self, turns: Sequence[Turn], claim: _Claim, error: ProviderError) -> None:
        """Let turns wait for the end of an outage, which is no fault of theirs; for a day at most."""
        for turn in turns:
            if (turn.replied_at or turn.created_at) < self._patience_began():
                await self._give_up(turn, claim, error)
            else:
                await self._postpone(turn, claim, self._outage.wait_s, attempts=1)

    async def _put_off(self, turn: Turn, claim: _Claim, error: ProviderError) -> None:
        """Try again later, longer each time; for good, keep the turn in full."""
        if isinstance(error, ProviderTimeoutError):
            # It may be the provider's fault as well as the turn's.
            is_hopeless = (turn.replied_at or turn.created_at) < self._patience_began()
        else:
            is_hopeless = turn.attempts >= _MOST_ATTEMPTS or isinstance(error, ProviderRejectedError)
        if is_hopeless:
            await self._give_up(turn, claim, error)
            return
        wait_s = _wait_s(turn)
        log.info("evaluation put off", turn_id=turn.turn_id, reason=str(error), wait_s=round(wait_s, 1))
        await self._postpone(turn, claim, wait_s)

    async def _give_up(self, turn: Turn, claim: _Claim, error: ProviderError) -> None:
        log.warning("evaluation given up, turn kept in full", turn_id=turn.turn_id, reason=str(error))
        await self._settle(turn, claim, None, "failed")

    async def _postpone(
        self, turn: Turn, claim: _Claim, wait_s: float, *, attempts: int | None = None
    ) -> None:
        claim.held.discard(turn.turn_id)
        async with self._database.transaction() as session:
            await store.postpone_turns(session, [turn.turn_id], seconds=wait_s, attempts=attempts)

    def _hash(self, turn: Turn) -> int:
        return turn_hash(turn, judge=self._evaluator.identity if self._evaluator else "")

    async def _settle(self, turn: Turn, claim: _Claim, score: int | None, outcome: Outcome) -> None:
        """Store the verdict, once; a fault of ours puts off this turn and no other."""
        verdict = Verdict(
            status="unscored" if score is None else "scored",
            outcome=outcome,
            score=score,
            retention=None if score is None else retention_of(score),
            expires_at=None if score is None else expires_at(score, turn.created_at),
            turn_hash=self._hash(turn),
        )
        try:
            async with self._database.transaction() as session:
                is_recorded = await record_verdict(session, turn, verdict, now=self._clock())
        except TemporalMemoryError:
            raise
        except Exception:
            log.exception("verdict not stored", turn_id=turn.turn_id)
            await self._postpone(turn, claim, _wait_s(turn))
            return
        claim.held.discard(turn.turn_id)
        if not is_recorded:
            return
        self._count(verdict)
        log.info(
            "turn judged", turn_id=turn.turn_id, score=score, retention=verdict.retention, outcome=outcome
        )
        if verdict.retention is not Retention.NONE:
            self._pipeline.wake()

    def _count(self, verdict: Verdict) -> None:
        if verdict.outcome != "disabled":
            self._metrics.evaluations.labels(verdict.outcome).inc()
        if verdict.score is not None:
            self._metrics.evaluation_score.observe(verdict.score)
        self._metrics.turns.labels(verdict.retention or "unscored").inc()


def _wait_s(turn: Turn) -> float:
    return float(min(_FIRST_WAIT_S * 2 ** min(max(turn.attempts - 1, 0), 30), _LONGEST_WAIT_S))


def _exchange(turn: Turn) -> Exchange:
    return Exchange(turn.user_content, turn.reply or "")
