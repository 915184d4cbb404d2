"""`kubechronicle witness`, and the tokens of outside witnesses for `kubechronicle verify --witness`.

Of the files beside the log, NAME.txt is the statement, and NAME.tsr the answer of the service: `openssl ts -verify`
takes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from getpass import getuser
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from kubechronicle.eventlog.integrity.checkpoints import Checkpoint
from kubechronicle.eventlog.integrity.witnesses import (
    WitnessToken,
    name_of,
    next_commit,
    record_token,
    recorded_tokens,
    state_of,
)
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.migrate import check_schema
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.pki import write_whole
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.server.witnessing import witness_urls
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from cryptography import x509

STATEMENT, ANSWER = ".txt", ".tsr"
MOST_LATE: Final = timedelta(minutes=15)
"""By which a token may be later than the next commit: the clocks of the database and of the service."""


# -- command -----------------------------------------------------------------------------------------------------------


async def run_witness(settings: Settings, *, output: Path | None) -> int:
    """Let the services of --witness sign the present state. Exit code 1: one did not. Raise OperatorError.

    ``output``: a directory for copies of the tokens
    """
    urls = witness_urls(settings)
    if not urls:
        raise OperatorError("--witness: name a time-stamping service, such as https://tsa.example.com")
    from kubechronicle.ops.server.outside.time_stamping import NoToken, services_of

    refused = False
    async with (
        maintenance_database(settings) as url,
        open_session(url, application="kubechronicle witness") as session,
        trio.open_nursery() as nursery,
    ):
        await check_schema(session)
        outgoing = Outgoing()
        await nursery.start(outgoing.run)
        for service in services_of(urls, outgoing):
            state = await state_of(session)
            try:
                token = await service.token(state)
            except NoToken as error:
                terminal.stderr().line(str(error))
                refused = True
                continue
            await record_token(session, token, actor=getuser())
            terminal.stdout().line(f"{service.url} signed revision {state.revision}, hash {state.hash.hex()}")
            if output is not None:
                _write(output, token, state)
        await tell_of_others(session)
        nursery.cancel_scope.cancel()
    return 1 if refused else 0


def _write(directory: Path, token: WitnessToken, state: Checkpoint) -> None:
    name = f"{state.revision:012}-{name_of(token.service)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for suffix, content in ((STATEMENT, token.statement), (ANSWER, token.token)):
            write_whole(directory / f"{name}{suffix}", content, mode=0o644)
    except OSError as error:
        raise OperatorError(f"--output: cannot write to {directory}: {error.strerror}") from None


# -- proof -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessFlags:
    """The flags of `verify`.

    ``certificates``: files of --witness; without one, tokens are not looked at.
    ``tokens``: the directory with copies of tokens.
    ``within``: the most seconds since the newest token.
    """

    certificates: Sequence[Path] = ()
    tokens: Path | None = None
    within: float | None = None


@dataclass(slots=True)
class Proof:
    """The signed states that tokens prove, each with the service and its time. ``problem``: "" without one."""

    states: list[tuple[Checkpoint, str, datetime]] = field(default_factory=list)
    problem: str = ""

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [state for state, _, _ in self.states]

    def summary(self, head: int) -> list[str]:
        """Return a line for each service, and one about the revisions that no service signed."""
        if not self.states:
            return []
        lines = []
        for service in dict.fromkeys(service for _, service, _ in self.states):
            own = sorted((at, state.revision) for state, of, at in self.states if of == service)
            (first, low), (last, high) = own[0], own[-1]
            tokens = terminal.counted(len(own), "token")
            lines.append(
                f"witnessed by {service}: {tokens}, of revision {low} at {first.isoformat()} up to revision {high} at "
                f"{last.isoformat()}; no revision up to {high} was rewritten since"
            )
        later = head - max(state.revision for state, _, _ in self.states)
        lines.append(f"{terminal.counted(later, 'later revision')} not witnessed yet")
        return lines


async def proof_of_log(session: PostgresSession, flags: WitnessFlags) -> Proof:
    """Return what the tokens in the log and in files prove. OperatorError, LogError."""
    if not flags.certificates:
        return Proof()
    try:
        tokens = await recorded_tokens(session)
    except ValueError as error:
        return Proof(problem=str(error))
    proof = proof_of(tokens, flags)
    for state, service, at in proof.states:
        following = await next_commit(session, state.revision)
        if following is not None and following < at - MOST_LATE:
            proof.problem = (
                f"{service} signed revision {state.revision} at {at.isoformat()} as the newest one, but the next one "
                f"is of {following.isoformat()}"
            )
    return proof


def proof_of(tokens: Sequence[WitnessToken], flags: WitnessFlags) -> Proof:
    """Return what tokens, and those in files, prove. OperatorError."""
    from kubechronicle.ops.server.outside.time_stamping import authorities, proved

    trusted: list[x509.Certificate] = authorities(flags.certificates)
    proof = Proof()
    for token in chain(tokens, _files(flags.tokens)):
        try:
            state, at = proved(token, trusted)
        except ValueError as error:
            proof.problem = proof.problem or str(error)
            continue
        proof.states.append((state, token.service, at))
    if not proof.states:
        proof.problem = proof.problem or "the log has no token of an outside witness"
    else:
        newest = max(at for _, _, at in proof.states)
        if flags.within is not None and datetime.now(UTC) - newest > timedelta(seconds=flags.within):
            proof.problem = proof.problem or f"the newest token of an outside witness is of {newest.isoformat()}"
    return proof


def _files(directory: Path | None) -> list[WitnessToken]:
    """Return the tokens in a directory. OperatorError."""
    if directory is None:
        return []
    try:
        return [
            WitnessToken(
                origin=str(file),
                service=f"the copies in {directory}",
                statement=file.with_suffix(STATEMENT).read_bytes(),
                token=file.read_bytes(),
            )
            for file in sorted(directory.glob(f"*{ANSWER}"))
        ]
    except OSError as error:
        raise OperatorError(f"--witness-tokens: cannot read {error.filename}: {error.strerror}") from None
