"""`temporal-memory keys` and `temporal-memory audit`: who may call, and who erased what."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Final, get_args
from zoneinfo import ZoneInfo

import click

from app.access.audit_store import AuditEntry
from app.access.callers import Role
from app.access.keys import PREFIX_FORM, KeyRecord
from app.commands.command_settings import load_command_settings
from app.services import open_administration
from app.settings import Settings
from app.settings_values import NAMESPACE_FORM

_HEADINGS: Final = ("KEY", "NAMESPACE", "ROLE", "LABEL", "CREATED", "LAST USED", "STATE")


def _read_namespace(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not NAMESPACE_FORM.fullmatch(value):
        raise click.BadParameter("letters, digits, . _ -, at most 64, a letter or digit first")
    return value


def _read_prefix(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    # A whole key may be given, too; what is told about it is its prefix.
    found = PREFIX_FORM.match(value)
    if found is None or value[found.end() : found.end() + 1] not in {"", "_"}:
        raise click.BadParameter("is not the beginning of a key, as keys list shows it (tm_ and 8 signs)")
    return found[0]


_of_namespace = click.option(
    "--namespace", metavar="NAME", callback=_read_namespace, help="Of this namespace."
)


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of callers.

    Once there is a key, nobody is served without one. Changes hold within two seconds in every process that
    serves, without a restart. Keys of API_KEYS are not listed here: they go with the setting.
    """


@keys.command("create")
@_of_namespace
@click.option("--role", type=click.Choice(get_args(Role)), default="bot", show_default=True)
@click.option("--label", metavar="TEXT", help="What it is for.")
def create_key(namespace: str | None, role: Role, label: str | None) -> None:
    """Make a key and print it, once: only its digest is kept.

    A bot writes, reads and erases its namespace; a reader reads it; an admin, who has no namespace, runs
    maintenance and counts what is in any, and sees no content.
    """
    if (namespace is None) != (role == "admin"):
        raise click.UsageError("a key of the role admin has no --namespace, and every other key needs one")
    asyncio.run(_create(load_command_settings(), namespace=namespace, role=role, label=label))


async def _create(settings: Settings, *, namespace: str | None, role: Role, label: str | None) -> None:
    async with open_administration(settings) as access:
        key = await access.create_key(namespace=namespace, role=role, label=label)
    click.echo(key.text)
    click.echo("It is not shown again. In lists and logs it is called " + key.prefix + ".", err=True)


@keys.command("list")
@_of_namespace
def list_keys(namespace: str | None) -> None:
    """List keys, by what they begin with."""
    asyncio.run(_list(load_command_settings(), namespace=namespace))


async def _list(settings: Settings, *, namespace: str | None) -> None:
    async with open_administration(settings) as access:
        found = await access.list_keys(namespace=namespace)
    for line in _in_columns([_HEADINGS, *(_describe(key, settings.recall.zone) for key in found)]):
        click.echo(line)


@keys.command("revoke")
@click.argument("key", required=False, callback=_read_prefix)
@_of_namespace
def revoke_keys(key: str | None, namespace: str | None) -> int:
    """Revoke KEY, by what it begins with; or, with --namespace alone, every key of a namespace."""
    if key is None and namespace is None:
        raise click.UsageError("say which KEY, or whose keys with --namespace")
    return asyncio.run(_revoke(load_command_settings(), prefix=key, namespace=namespace))


async def _revoke(settings: Settings, *, prefix: str | None, namespace: str | None) -> int:
    async with open_administration(settings) as access:
        revoked = await access.revoke_keys(prefix=prefix, namespace=namespace)
    for key in revoked:
        click.echo(f"{key.prefix} is revoked.")
    if not revoked:
        click.echo("There is no such key that is not revoked already.", err=True)
    return 0 if revoked else 1


@click.command()
@_of_namespace
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
def audit(namespace: str | None, limit: int) -> None:
    """Print who erased what and who made or revoked keys, newest first."""
    asyncio.run(_audit(load_command_settings(), namespace=namespace, limit=limit))


async def _audit(settings: Settings, *, namespace: str | None, limit: int) -> None:
    async with open_administration(settings) as access:
        entries = await access.list_deeds(namespace=namespace, limit=limit)
    for entry in entries:
        click.echo(_tell(entry, settings.recall.zone))


def _describe(key: KeyRecord, zone: ZoneInfo) -> tuple[str, ...]:
    return (
        key.prefix,
        key.namespace or "*",
        key.role,
        key.label or "-",
        _moment(key.created_at, zone),
        _moment(key.last_used_at, zone) if key.last_used_at else "never",
        f"revoked {_moment(key.revoked_at, zone)}" if key.revoked_at else "open",
    )


def _tell(entry: AuditEntry, zone: ZoneInfo) -> str:
    deed = entry.deed
    facts = {
        "namespace": deed.namespace or "*",
        "user_id": deed.user_id,
        "group_id": deed.group_id,
        "dialogue_id": deed.dialogue_id,
        "key": deed.key_prefix,
        **deed.counts,
        "by": entry.actor.name,
        "request_id": entry.actor.request_id,
    }
    told = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    return f"{_moment(entry.at, zone)} {deed.action} {told}"


def _moment(at: datetime, zone: ZoneInfo) -> str:
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")


def _in_columns(rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
