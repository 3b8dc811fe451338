"""The clients of the chaos run: each owns some sessions, does one thing at a time, and believes answers.

A client asks again, at any of the services, until it is answered; what it asks again is the same request with
the same message_uuid or message_id. It waits longer for an answer than any fault lasts, so it never has two
requests for one thing under way: what it was told is all that has happened.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from benchmarks.chaos_ledger import POISON, TOKEN, Ledger, Message, Session, Turn, check_listed, new_token

_PATIENCE_S = 90.0
_PAUSE_S = 0.15
_THINGS = ("快递", "合同", "药", "车票", "密码本", "钥匙", "发票", "蛋糕", "相机", "护照")
_PLACES = ("抽屉", "书房", "门口", "公司", "车里", "冰箱", "阳台", "柜台")


@dataclass(frozen=True)
class Answer:
    """`tries`: how often the request was sent."""

    status: int
    body: Any
    tries: int


class Client:
    """One owner of sessions; sends to whichever service answers."""

    def __init__(
        self, urls: Sequence[str], *, key: str, sessions: list[Session], ledger: Ledger, seed: int
    ) -> None:
        """Connect to nothing yet.

        Args:
            urls: of the services.
            key: of the namespace of the sessions.
            sessions: of one user, nobody else's.
            ledger: where answers are noted.
            seed: of what it does.
        """
        self._urls = urls
        self._sessions = sessions
        self._ledger = ledger
        self._random = random.Random(seed)
        self._http = httpx.AsyncClient(
            timeout=_PATIENCE_S, trust_env=False, headers={"Authorization": f"Bearer {key}"}
        )
        self._acts: dict[Callable[[Session], Awaitable[None]], float] = {
            self._write: 30,
            self._write_by_message_id: 12,
            self._write_batch: 8,
            self._write_poison: 1,
            self._write_again: 8,
            self._chat: 14,
            self._chat_streamed: 8,
            self._hang_up: 4,
            self._chat_again: 4,
            self._search: 20,
            self._list: 4,
            self._change: 4,
            self._delete: 5,
            self._delete_of_turn: 3,
            self._erase_session: 2,
            self._erase_while_speaking: 1,
            self._erase_user: 0.5,
        }

    async def run(self, stopping: asyncio.Event, *, pause_s: float) -> None:
        """Act until it is time to stop; what is under way then is finished."""
        acts, weights = list(self._acts), list(self._acts.values())
        while not stopping.is_set():
            act = self._random.choices(acts, weights)[0]
            await act(self._random.choice(self._sessions))
            self._ledger.tally[act.__name__.strip("_")] += 1
            await asyncio.sleep(pause_s * self._random.uniform(0.3, 1.7))
        await self.aclose()

    async def aclose(self) -> None:
        """Hang up."""
        await self._http.aclose()

    async def send(
        self, method: str, path: str, body: Any = None, *, once: frozenset[int] = frozenset(), **params: Any
    ) -> Answer:
        """Send until it is answered by other than 5xx.

        Args:
            method: of the request.
            path: of the request.
            body: JSON.
            once: statuses of 5xx that are an answer, too.
            params: of the query.
        """
        for tries in itertools.count(1):
            url = self._random.choice(self._urls)
            try:
                answer = await self._http.request(method, url + path, json=body, params=params)
            except httpx.ReadTimeout:
                # Two requests of ours may be under way from here on: the run proves nothing any more.
                self._ledger.accuse("requests without an answer for 90 s", f"{method} {path}")
            except httpx.TransportError as error:
                self._ledger.tally[f"connection: {type(error).__name__}"] += 1
            else:
                self._note(method, path, answer)
                if answer.status_code < 500 or answer.status_code in once:
                    content = orjson.loads(answer.content) if answer.content else None
                    return Answer(answer.status_code, content, tries)
            await asyncio.sleep(_PAUSE_S * self._random.uniform(0.5, 2))
        raise AssertionError("counting has no end")

    def _note(self, method: str, path: str, answer: httpx.Response) -> None:
        if answer.status_code < 500:
            return
        try:
            problem = answer.json()["type"].removeprefix("/problems/")
        except (ValueError, KeyError, TypeError):
            problem = "no problem document"
            self._ledger.accuse(
                "failures that are no problem document", f"{method} {path} {answer.text[:200]}"
            )
        self._ledger.tally[f"{answer.status_code} {problem}"] += 1
        if answer.status_code == 500:
            self._ledger.accuse("answers 500", f"{method} {path} {answer.headers.get('x-request-id')}")
        if answer.status_code == 503 and not answer.headers.get("retry-after"):
            self._ledger.accuse("503 without Retry-After", f"{method} {path}")

    def _say(self) -> tuple[str, str]:
        token = new_token()
        thing, place = self._random.choice(_THINGS), self._random.choice(_PLACES)
        return token, f"我把{thing}放在{place}了，编号{token}"

    def _body(self, session: Session, content: str, **more: Any) -> dict[str, Any]:
        wait = {"wait": True} if self._random.random() < 0.1 else {}
        return {**session.address, "role": "user", "content": content, "sender_name": "小明", **wait, **more}

    async def _write(self, session: Session) -> None:
        token, content = self._say()
        await self._post(session, token, self._body(session, content, message_uuid=f"w-{token}"))

    async def _write_by_message_id(self, session: Session) -> None:
        token, content = self._say()
        await self._post(session, token, self._body(session, content, message_id=int(token[1:-1])))

    async def _write_poison(self, session: Session) -> None:
        token, content = self._say()
        body = self._body(session, f"{content}，{POISON}", message_uuid=f"w-{token}")
        await self._post(session, token, body)

    async def _post(self, session: Session, token: str, body: dict[str, Any]) -> None:
        answer = await self.send("POST", "/dialogues", body)
        if answer.status not in ({201} if answer.tries == 1 else {200, 201}):
            self._ledger.accuse("writes answered wrongly", f"{token}: {answer}")
            return
        name: dict[str, str | int] = {key: body[key] for key in ("message_uuid", "message_id") if key in body}
        session.messages[token] = Message(answer.body["id"], token, body["content"], name)

    async def _write_batch(self, session: Session) -> None:
        said = [self._say() for _ in range(self._random.randint(2, 8))]
        bodies = [self._body(session, content, message_uuid=f"w-{token}") for token, content in said]
        for body in bodies:
            body.pop("wait", None)
        answer = await self.send("POST", "/dialogues/batch", {"dialogues": bodies})
        if answer.status != 200 or (answer.tries == 1 and answer.body["stored"] != len(bodies)):
            self._ledger.accuse("writes answered wrongly", f"batch of {said[0][0]}: {answer}")
            return
        for (token, content), one in zip(said, answer.body["dialogues"], strict=True):
            name: dict[str, str | int] = {"message_uuid": f"w-{token}"}
            session.messages[token] = Message(one["id"], token, content, name)

    async def _write_again(self, session: Session) -> None:
        known = [message for message in session.messages.values() if message.name]
        if known:
            await self.repeat(session, self._random.choice(known))

    async def repeat(self, session: Session, message: Message) -> None:
        """What was acknowledged long ago, posted once more: the same id."""
        answer = await self.send("POST", "/dialogues", self._body(session, message.content, **message.name))
        if answer.status != 200 or answer.body["id"] != message.id:
            self._ledger.accuse("retries answered by another id", f"{message}: {answer}")

    async def _chat(self, session: Session) -> None:
        await self._turn(session, stream=False)

    async def _turn(self, session: Session, *, stream: bool) -> None:
        token, content = self._say()
        turn = Turn(None, token, content, f"c-{token}", None)
        body = self._chat_body(session, turn)
        while True:
            answer = await (self._listen(body) if stream else self._ask(body))
            if answer.status == 200:
                turn.turn_id, turn.reply = answer.body["turn_id"], answer.body["reply"]
                break
            if self._random.random() < 0.3:
                break
            await asyncio.sleep(_PAUSE_S)
        session.turns[token] = turn

    def _chat_body(self, session: Session, turn: Turn) -> dict[str, Any]:
        return {
            **session.address,
            "user_input": turn.content,
            "message_uuid": turn.message_uuid,
            "sender_name": "小明",
        }

    async def _ask(self, body: dict[str, Any]) -> Answer:
        return await self.send("POST", "/chat", body, once=frozenset({502, 504}))

    async def _listen(self, body: dict[str, Any], *, events: int | None = None) -> Answer:
        """A streamed turn, asked for until it ends with `done` or with the model's failure.

        Args:
            body: of the request, without `stream`.
            events: hang up after so many; the answer is then of status 0.
        """
        while True:
            try:
                answer = await self._listen_once(self._random.choice(self._urls), body, events=events)
            except httpx.ReadTimeout:
                self._ledger.accuse("requests without an answer for 90 s", f"stream {body['message_uuid']}")
            except httpx.TransportError as error:
                self._ledger.tally[f"connection: {type(error).__name__}"] += 1
            else:
                if answer is not None:
                    return answer
            await asyncio.sleep(_PAUSE_S * self._random.uniform(0.5, 2))

    async def _listen_once(self, url: str, body: dict[str, Any], *, events: int | None) -> Answer | None:
        """One stream to its end, or for so many events; None where the turn has to be asked for again."""
        async with self._http.stream("POST", url + "/chat", json={**body, "stream": True}) as answer:
            if answer.status_code != 200:
                await answer.aread()
                self._note("POST", "/chat", answer)
                return Answer(answer.status_code, None, 1) if answer.status_code in {502, 504} else None
            name, document, seen = "", None, 0
            async for name, document in _events(answer):  # noqa: B007 - the last one is what counts
                seen += 1
                if seen == events:
                    return Answer(0, document, 1)
        if name == "done":
            return Answer(200, document, 1)
        if name == "error" and document is not None:
            status, problem = document["status"], document["type"].removeprefix("/problems/")
            self._ledger.tally[f"stream: {status} {problem}"] += 1
            if status == 500:
                self._ledger.accuse("answers 500", f"stream {document['request_id']}")
            return Answer(status, None, 1) if status in {502, 504} else None
        self._ledger.accuse("streams that ended without done or error", str(body))
        return None

    async def _chat_streamed(self, session: Session) -> None:
        await self._turn(session, stream=True)

    async def _hang_up(self, session: Session) -> None:
        """Leave in the middle of an answer, then ask again: the turn is there."""
        token, content = self._say()
        turn = Turn(None, token, content, f"c-{token}", None)
        body = self._chat_body(session, turn)
        await self._listen(body, events=self._random.randint(1, 3))
        while True:
            answer = await self._ask(body)
            if answer.status == 200:
                break
            await asyncio.sleep(_PAUSE_S)
        turn.turn_id, turn.reply = answer.body["turn_id"], answer.body["reply"]
        session.turns[token] = turn

    async def _chat_again(self, session: Session) -> None:
        told = [turn for turn in session.turns.values() if turn.turn_id is not None]
        if told:
            await self.ask_again(session, self._random.choice(told))

    async def ask_again(self, session: Session, turn: Turn) -> None:
        """An answered turn, asked for once more: the same turn with the same reply."""
        answer = await self._ask(self._chat_body(session, turn))
        if answer.status != 200 or (answer.body["turn_id"], answer.body["reply"]) != (
            turn.turn_id,
            turn.reply,
        ):
            self._ledger.accuse("retries answered by another turn", f"{turn}: {answer}")

    async def _search(self, session: Session) -> None:
        """What was written a moment ago is found by the next search."""
        if not session.messages:
            return
        newest = self._random.choice(list(session.messages.values())[-3:])
        body = {**session.address, "query": newest.content, "top_n": 10, "window_size": 1}
        answer = await self.send("POST", "/memory/search", body)
        if answer.status != 200:
            self._ledger.accuse("searches refused", f"{newest.token}: {answer}")
            return
        self._ledger.tally["searches answered by words alone"] += bool(answer.body["degraded"])
        found = answer.body["memories"]
        if newest.id not in [one["id"] for one in found]:
            self._ledger.accuse(
                "written, then not found", f"{session.key} {newest}: {[one['id'] for one in found]}"
            )
        strangers = [
            one["id"]
            for one in found
            if (one["user_id"], one["group_id"]) != (session.user_id, session.group_id)
        ]
        gone = [one["id"] for one in found if self._ledger.erased.intersection(TOKEN.findall(one["content"]))]
        if strangers or gone:
            self._ledger.accuse(
                "found, though erased or another session's", f"{session.key}: {strangers} {gone}"
            )

    async def _list(self, session: Session) -> None:
        listed = await self.list_all(session)
        check_listed(self._ledger, session, listed)

    async def list_all(self, session: Session) -> list[dict[str, Any]]:
        """All pages of a session."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {**session.address, "limit": self._random.randint(20, 60)}
        while True:
            answer = await self.send("GET", "/dialogues", None, **params)
            if answer.status != 200:
                self._ledger.accuse("pages refused", f"{session.key}: {answer}")
                return found
            found += answer.body["dialogues"]
            if answer.body["next_cursor"] is None:
                return found
            params["cursor"] = answer.body["next_cursor"]

    async def _change(self, session: Session) -> None:
        if not session.messages:
            return
        message = self._random.choice(list(session.messages.values()))
        token, content = self._say()
        content = f"改{content}"
        answer = await self.send("PATCH", f"/dialogues/{message.id}", {"content": content})
        if answer.status != 200 or answer.body["content"] != content:
            self._ledger.accuse("changes answered wrongly", f"{message}: {answer}")
            return
        # In its old place: a change does not move a message.
        changed = {
            (token if key == message.token else key): (
                Message(one.id, token, content, {}) if key == message.token else one
            )
            for key, one in session.messages.items()
        }
        self._ledger.deleted.add(message.content)
        session.messages.clear()
        session.messages.update(changed)

    async def _delete(self, session: Session) -> None:
        if not session.messages:
            return
        message = self._random.choice(list(session.messages.values()))
        answer = await self.send("DELETE", f"/dialogues/{message.id}")
        if answer.status not in ({204} if answer.tries == 1 else {204, 404}):
            self._ledger.accuse("erasures answered wrongly", f"{message}: {answer}")
        self._ledger.delete(session, message.token)

    async def _delete_of_turn(self, session: Session) -> None:
        """Delete the user's message of a turn that was stored: the turn goes with it."""
        told = [turn for turn in session.turns.values() if turn.turn_id is not None]
        if not told:
            return
        turn = self._random.choice(told)
        became = await self.send("GET", f"/chat/turns/{turn.turn_id}")
        if became.status != 200:
            self._ledger.accuse("turns not there once", f"{turn}: {became}")
            return
        if not became.body["dialogue_ids"]:
            return
        answer = await self.send("DELETE", f"/dialogues/{became.body['dialogue_ids'][0]}")
        if answer.status not in ({204} if answer.tries == 1 else {204, 404}):
            self._ledger.accuse("erasures answered wrongly", f"{turn}: {answer}")
        self._ledger.deleted.add(session.turns.pop(turn.token).content)

    async def _erase_session(self, session: Session) -> None:
        answer = await self.send("DELETE", f"/sessions/{session.key}")
        self._note_erased(answer, [session])

    async def _erase_user(self, session: Session) -> None:
        answer = await self.send("DELETE", f"/users/{session.user_id}")
        self._note_erased(answer, self._sessions)

    async def _erase_while_speaking(self, session: Session) -> None:
        """Erase a session in the middle of an answer: the turn is not to come back when the answer ends."""
        token, content = self._say()
        turn = Turn(None, token, content, f"c-{token}", None)
        body = self._chat_body(session, turn)
        is_erased = False
        try:
            url = self._random.choice(self._urls)
            async with self._http.stream("POST", f"{url}/chat", json={**body, "stream": True}) as answer:
                async for _ in _events(answer):
                    if not is_erased:
                        erased = await self.send("DELETE", f"/sessions/{session.key}")
                        session.turns[token] = turn
                        self._note_erased(erased, [session])
                        is_erased = True
        except httpx.TransportError as error:
            self._ledger.tally[f"connection: {type(error).__name__}"] += 1
        if not is_erased:
            # Whether the turn has begun is not known: it is brought to an end, and erased then.
            await self._ask(body)
            session.turns[token] = turn
            await self._erase_session(session)

    def _note_erased(self, answer: Answer, sessions: list[Session]) -> None:
        if answer.status != 200:
            self._ledger.accuse("erasures answered wrongly", f"{sessions[0].key}: {answer}")
            return
        known = sum(len(session.messages) for session in sessions)
        if answer.tries == 1 and answer.body["erased"]["dialogues"] < known:
            self._ledger.accuse("erasures that found too little", f"{sessions[0].key}: {answer} of {known}")
        self._ledger.erase(sessions)


async def _events(answer: httpx.Response) -> Any:
    """Server-sent events, as they come."""
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, orjson.loads(line.removeprefix("data: "))
