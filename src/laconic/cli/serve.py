"""``laconic serve``: answer requests of the Open Inference Protocol with an artifact."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from laconic.cli.output import JsonFile, check_outputs, console_for, facts_table, write_json
from laconic.errors import ConfigError

if TYPE_CHECKING:
    from laconic.serve.engine import Engine
    from laconic.serve.server import Listening
    from laconic.serve.settings import ServerSettings

_TOKEN = "LACONIC_SERVE_TOKEN"
_SHORTEST_TOKEN = 16


def serve(
    artifact: Path = typer.Argument(
        help="Folder that laconic quantize wrote, or a link to one: reloading follows it anew."
    ),
    host: str | None = typer.Option(None, help="Address to listen on.  [default: 127.0.0.1]"),
    port: int | None = typer.Option(None, help="0 takes a free one.  [default: 8000]"),
    config: Path | None = typer.Option(None, help="TOML file of settings."),
    setting: list[str] = typer.Option(
        [], "--set", help="A setting, as batching.latency_ms=5; may be repeated."
    ),
    token_file: Path | None = typer.Option(
        None, help=f"File with the token that clients must send as Bearer. Left out: {_TOKEN}, or none."
    ),
    json_file: JsonFile = None,
) -> None:
    """Serve a quantized model until SIGTERM, which lets it answer what it has accepted.

    SIGHUP loads the artifact again without failing a request. A share of the traffic is scored in
    fp32 as well, and a table or layer that harms scores too much is switched to fp32; see
    docs/guides/serving.md.
    """
    from laconic.config import load, parse
    from laconic.serve.engine import Engine
    from laconic.serve.server import serve as run
    from laconic.serve.settings import ServerSettings

    check_outputs(json=json_file)
    overrides = list(setting)
    overrides += [f"{name}={value}" for name, value in (("host", host), ("port", port)) if value is not None]
    settings = (
        parse("", ServerSettings, overrides) if config is None else load(config, ServerSettings, overrides)
    )
    token = _read_token(token_file)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    console = console_for(json_file)

    def make() -> Engine:
        return Engine.load(artifact, settings.threads)

    with console.status(f"loading {artifact}"):
        first = [make()]  # the server alone keeps it: after a reload it must go
    version, facts = first[0].version, _facts(first[0], settings, token)

    def ready(listening: Listening) -> None:
        shown = {"address": listening.url, **facts}
        console.print(facts_table((f"[bold]{name}", value) for name, value in shown.items()))
        described = {"url": listening.url, "version": version}
        write_json({**described, "settings": settings.model_dump(mode="json")}, json_file)

    run(lambda: first.pop() if first else make(), settings, token=token, ready=ready)


def _read_token(file: Path | None) -> str | None:
    """Read the token; it is never an argument, which everyone on the machine could see."""
    where = _TOKEN if file is None else str(file)
    token = os.environ.get(_TOKEN) if file is None else file.read_text(encoding="utf-8").strip()
    if token is None:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{where}: expected a token of at least {_SHORTEST_TOKEN} letters and digits, got {len(token)} characters; "
            "make one by openssl rand -hex 32"
        )
    return token


def _facts(engine: Engine, settings: ServerSettings, token: str | None) -> dict[str, str]:
    schema = engine.signature.schema
    return {
        "model": f"{settings.model}, version {engine.version}",
        "inputs": f"{len(schema.dense)} dense features, {schema.tables} tables, {schema.total_rows:,} rows",
        "below fp32": f"{len(engine.lowered)} tables and layers",
        "token": "none" if token is None else "asked for",
        "watch": f"{settings.watch.share:.0%} of requests" if settings.watch.enabled else "off",
    }
