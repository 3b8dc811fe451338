"""Making, listing and revoking keys, and reading the audit log: an operator's work, at the command line."""

from app.access import audit_store, store
from app.access.audit_store import AuditEntry, Deed
from app.access.callers import PROGRAM, Actor, Role
from app.access.keys import KeyRecord, NewKey, digest_key, make_key
from app.clock import Clock
from app.database.engine import Database


class AdministrationService:
    """Administers keys; each change stands in the audit log."""

    def __init__(self, *, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create_key(
        self, *, namespace: str | None, role: Role, label: str | None = None, by: Actor = PROGRAM
    ) -> NewKey:
        """Make a key; its text is in the answer and nowhere else.

        Args:
            namespace: what it opens; None for an admin, and for nobody else.
            role: what it may do.
            label: what it is for.
            by: who makes it.

        Raises:
            ValueError: an admin with a namespace, or anybody else without.
        """
        if (namespace is None) != (role == "admin"):
            raise ValueError("a key of an admin has no namespace, and every other key has one")
        now = self._clock()
        while True:
            key = make_key()
            async with self._database.transaction() as session:
                record = await store.insert_key(
                    session,
                    namespace=namespace,
                    role=role,
                    prefix=key.prefix,
                    digest=digest_key(key.text),
                    label=label,
                    now=now,
                )
                if record is not None:
                    deed = Deed("key_created", namespace, key_prefix=key.prefix)
                    await audit_store.record_deed(session, deed, by=by, at=now)
                    return key

    async def list_keys(self, *, namespace: str | None = None) -> list[KeyRecord]:
        """Keys by (namespace, creation), revoked ones too; of one namespace, or all."""
        async with self._database.read() as session:
            return await store.list_keys(session, namespace=namespace)

    async def revoke_keys(
        self, *, prefix: str | None, namespace: str | None, by: Actor = PROGRAM
    ) -> list[KeyRecord]:
        """Revoke the key with this prefix, or all keys of a namespace; those that opened until now."""
        now = self._clock()
        async with self._database.transaction() as session:
            revoked = await store.revoke_keys(session, prefix=prefix, namespace=namespace, now=now)
            for record in revoked:
                deed = Deed("key_revoked", record.namespace, key_prefix=record.prefix)
                await audit_store.record_deed(session, deed, by=by, at=now)
        return revoked

    async def record_forgotten(
        self, namespace: str | None, *, expired: int, unretrieved: int, by: Actor
    ) -> None:
        """Write down what a caller has had forgotten, out of turn; nothing is nothing to tell."""
        if expired or unretrieved:
            counts = {"expired": expired, "unretrieved": unretrieved}
            async with self._database.transaction() as session:
                await audit_store.record_deed(
                    session, Deed("memory_forgotten", namespace, counts=counts), by=by
                )

    async def list_deeds(self, *, namespace: str | None = None, limit: int = 100) -> list[AuditEntry]:
        """The latest entries of the audit log, newest first; of one namespace, or all."""
        async with self._database.read() as session:
            return await audit_store.list_deeds(session, namespace=namespace, limit=limit)
