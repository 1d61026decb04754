"""`gateway usage`: who used how much, as a table, CSV or JSON?"""

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TextIO

import click
import httpx
import msgspec
from rich.console import Console

from gateway.commands import ADMIN_KEY, CONFIG, failures_told, loaded
from gateway.settings import Server, Settings
from gateway.stores.redis.target import Target
from gateway.stores.redis.usage import RedisUsage
from gateway.usage import Report, UsageRow, dimensions, rows_of

DEFAULT_DAYS = 7
ADMIN_TIMEOUT_S = 10
WIDE = 10_000  # columns: where there are fewer, a line goes on below rather than lose a figure
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # to listen on, and where that is reached from here
DAY = click.DateTime(["%Y-%m-%d"])


class _Answer(msgspec.Struct):
    data: list[UsageRow]


class _ErrorObject(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _ErrorObject


def _by(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    try:
        return dimensions(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@CONFIG
@click.option(
    "--from",
    "first",
    type=DAY,
    metavar="DATE",
    help="First day, in UTC, as 2026-11-30.  [default: a week up to --to]",
)
@click.option("--to", "last", type=DAY, metavar="DATE", help="Last day, in UTC.  [default: today]")
@click.option("--tenant", metavar="ID", help="Of this tenant only.")
@click.option(
    "--by",
    default="day,tenant,model",
    show_default=True,
    callback=_by,
    metavar="NAMES",
    help="What to sum by: some of day, tenant, key, model, outcome, with commas between.",
)
@click.option(
    "--csv",
    type=click.File("w", encoding="utf-8"),
    metavar="FILE",
    help="Write CSV to a file, or to standard output (-).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def usage(
    path: Path,
    first: datetime | None,
    last: datetime | None,
    tenant: str | None,
    by: tuple[str, ...],
    csv: TextIO | None,
    as_json: bool,
) -> None:
    """Requests and tokens that were used.

    They are read from Redis. With the memory store they are asked of the running gateway, whose admin key
    must be in the environment variable GATEWAY_ADMIN_KEY.
    """
    if csv and as_json:
        raise click.UsageError("--csv or --json, not both")
    period = _period(first, last)
    settings = loaded(path)
    report = Report.of(_read(settings, *period, tenant), by)
    if not report.data:
        of = f" of tenant {tenant}" if tenant else ""
        click.echo(f"no usage{of} from {period[0]} to {period[1]}", err=bool(csv or as_json))
    if as_json:
        click.echo(msgspec.json.encode(report))
    elif csv:
        csv.write(report.as_csv())
    elif report.data:
        Console(width=WIDE).print(report.as_table())


def _period(first: datetime | None, last: datetime | None) -> tuple[date, date]:
    until = last.date() if last else datetime.now(UTC).date()
    since = first.date() if first else until - timedelta(days=DEFAULT_DAYS - 1)
    if since > until:
        raise click.UsageError(f"--from {since}: is after --to {until}")
    return since, until


def _read(settings: Settings, first: date, last: date, tenant: str | None) -> Sequence[UsageRow]:
    if settings.store.url == "memory://":
        return _from_gateway(settings.server, first, last, tenant)
    with failures_told():
        return asyncio.run(_from_redis(settings, first, last, tenant))


async def _from_redis(settings: Settings, first: date, last: date, tenant: str | None) -> list[UsageRow]:
    target = Target(settings.store)
    client = target.client()
    try:
        store = RedisUsage(client, settings.store.prefix, settings.usage.retention_days)
        return rows_of(await store.sums(first, last, tenant))
    finally:
        await client.aclose()
        await target.aclose()


def _from_gateway(server: Server, first: date, last: date, tenant: str | None) -> list[UsageRow]:
    if not server.admin_port:
        raise click.ClickException("server.admin_port = 0: with any free port it cannot be found; name one")
    key = os.environ.get(ADMIN_KEY, "")
    if not re.fullmatch("[!-~]+", key):
        raise click.ClickException(
            f'store.url = "memory://": only the running gateway knows. Export its admin key in {ADMIN_KEY}; '
            "gateway keys admin makes one"
        )
    host = EVERYWHERE.get(server.admin_host, server.admin_host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{server.admin_port}/admin/usage"
    query = {"from": str(first), "to": str(last)} | ({"tenant": tenant} if tenant else {})
    credential = {"authorization": f"Bearer {key}"}
    try:
        response = httpx.get(url, params=query, headers=credential, timeout=ADMIN_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        raise click.ClickException(f"{url}: {error}. Is the gateway running?") from None
    return _rows(url, response)


def _rows(url: str, response: httpx.Response) -> list[UsageRow]:
    try:
        if response.status_code == 200:
            return msgspec.json.decode(response.content, type=_Answer).data
        message = msgspec.json.decode(response.content, type=_Refusal).error.message
    except msgspec.MsgspecError:
        raise click.ClickException(f"{url}: is another program on that port? It answers otherwise") from None
    raise click.ClickException(f"{url}: {message}")
