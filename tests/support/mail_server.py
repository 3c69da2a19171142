"""A real SMTP server on the loopback, with STARTTLS and sign-in, that keeps or refuses mails."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.support.certificates import self_signed
from tests.support.process import free_port

USER, PASSWORD = "climate", "correct horse"
#: Instead of a reply: the connection breaks.
CUT = "cut"


@dataclass(frozen=True)
class Received:
    """A mail that the server accepted (or whose acceptance the client never learned)."""

    sender: str
    to: list[str]
    is_encrypted: bool
    user: str | None
    raw: bytes

    @property
    def message(self) -> EmailMessage:
        return message_from_bytes(self.raw, policy=policy.default)

    @property
    def text(self) -> str:
        return self._part("plain")

    @property
    def html(self) -> str:
        return self._part("html")

    def link(self, purpose: str) -> str:
        """Return the path of the link in the text whose path begins with ``/email/PURPOSE/``."""
        [path] = re.findall(rf"https://climate\.example(/email/{purpose}/\S+)", self.text)
        return str(path)

    def _part(self, kind: str) -> str:
        body = self.message.get_body((kind,))
        assert body is not None
        return str(body.get_content())


@dataclass
class MailServer:
    """Answers RCPT and DATA with ``replies``, in turn; without one it accepts."""

    folder: Path
    port: int = field(default_factory=free_port)
    offers_tls: bool = True
    got: list[Received] = field(default_factory=list)
    rcpt_replies: list[str] = field(default_factory=list)
    data_replies: list[str] = field(default_factory=list)
    refused: int = 0
    _controller: Controller | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options of a service that sends its mails here."""
        return {
            "api__public_url": "https://climate.example",
            "email__server": "localhost",
            "email__port": self.port,
            "email__user": USER,
            "email__password": PASSWORD,
            "email__cafile": str(self.folder / "localhost.pem"),
            "email__sender": "Lab leases <climate@lab.example>",
            "email__timeout": 5.0,
        }

    def start(self) -> None:
        certificate, key = self_signed(self.folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure: dict[str, Any] = {
            "tls_context": context,
            "require_starttls": True,
            "auth_required": True,
        }
        self._controller = Controller(
            self,
            hostname="localhost",
            port=self.port,
            authenticator=self._authenticate,
            **(secure if self.offers_tls else {}),
        )
        self._controller.start()

    def stop(self) -> None:
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    def _authenticate(self, *given: Any) -> AuthResult:
        login: LoginPassword = given[-1]
        is_right = (login.login, login.password) == (USER.encode(), PASSWORD.encode())
        self.refused += not is_right
        return AuthResult(success=is_right, handled=False, auth_data=login)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        reply = self.rcpt_replies.pop(0) if self.rcpt_replies else "250 OK"
        if reply == CUT:
            server.transport.abort()
        elif reply.startswith("2"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        reply = self.data_replies.pop(0) if self.data_replies else "250 OK"
        if reply == CUT or reply.startswith("2"):
            login = session.auth_data
            user = login.login.decode() if login else None
            mail = (envelope.mail_from, envelope.rcpt_tos, session.ssl is not None, user)
            self.got.append(Received(*mail, envelope.original_content))
        if reply == CUT:
            server.transport.abort()
        return reply


@contextmanager
def mail_server(folder: Path, *, offers_tls: bool = True) -> Iterator[MailServer]:
    """Run an SMTP server on a free port."""
    server = MailServer(folder, offers_tls=offers_tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
