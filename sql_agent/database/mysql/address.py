"""Parse the URL of a database on a MySQL or MariaDB server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from sql_agent.errors import ConfigError

SCHEMES = ("mysql+pymysql", "mysql", "mariadb", "mariadb+pymysql")
_PORT = 3306
_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
_EXAMPLE = "give mysql+pymysql://USER:PASSWORD@HOST:3306/DATABASE"
_ENCODE = f"{_EXAMPLE}, with every character of the password except letters and digits as %XX"


@dataclass(frozen=True)
class ServerAddress:
    """The server, user and name of a database. `str()` returns a URL without the password.

    `ssl_mode` has the values of MySQL's clients. `ssl_ca`, `ssl_cert` and `ssl_key` are paths of PEM files.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    ssl_mode: str = "preferred"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    unix_socket: str | None = None

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"

    @property
    def stem(self) -> str:
        """Return the database's name, for names of files, like `Path.stem` of a SQLite file."""
        return self.database

    @property
    def url(self) -> str:
        """The URL with the password."""
        user = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        options = {name: value for name in _OPTIONS if (value := getattr(self, name)) not in {None, "preferred"}}
        query = f"?{urlencode(options)}" if options else ""
        return f"mysql+pymysql://{user}@{self.host}:{self.port}/{quote(self.database, safe='')}{query}"

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """Return the address in `url`. Raises ConfigError, whose message never contains the password."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:  # its message can contain a part of the password
            raise ConfigError("the host or port in the database's URL cannot be read", hint=_ENCODE) from None
        if "@" in parts.path + parts.query + parts.fragment:  # the password contains an unescaped / ? or #
            raise ConfigError("the database's URL has an @ after the host", hint=_ENCODE)
        database = unquote(parts.path.strip("/"))
        options = dict(parse_qsl(parts.query))
        unknown = sorted(options.keys() - set(_OPTIONS) - {"charset"})  # charset is always utf8mb4
        if unknown:
            message = f"the database's URL has unknown options: {', '.join(unknown)}"
            raise ConfigError(message, hint=f"known: {', '.join(_OPTIONS)}")
        options.pop("charset", None)
        if not host and "unix_socket" not in options:
            raise ConfigError("the database's URL names no host", hint=_EXAMPLE)
        if not database:
            raise ConfigError(f"the database's URL names no database at {host}", hint=_EXAMPLE)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        address = cls(host or "localhost", port, user, password, database, **options)
        address._check_tls()
        return address

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for `ssl_mode`; None for "preferred" and "disabled"."""
        if self.ssl_mode in {"disabled", "preferred"}:
            return None
        if not self.ssl_ca and not self.ssl_cert:
            return _shared_context(self.ssl_mode)
        context = _context(self.ssl_mode, self.ssl_ca)
        if self.ssl_cert:
            context.load_cert_chain(self.ssl_cert, self.ssl_key)
        return context

    def _check_tls(self) -> None:
        if self.ssl_mode not in _MODES:
            raise ConfigError(
                f"the database's URL has the unknown ssl_mode={self.ssl_mode}", hint=f"known: {', '.join(_MODES)}"
            )
        given = [path for path in (self.ssl_ca, self.ssl_cert, self.ssl_key) if path]
        if given and self.ssl_mode in {"disabled", "preferred"}:
            message = "the database's URL has certificates without an ssl_mode that uses them"
            raise ConfigError(message, hint="add ssl_mode=verify_identity")
        if self.ssl_key and not self.ssl_cert:
            raise ConfigError("the database's URL has ssl_key without ssl_cert", hint="add ssl_cert")
        try:
            self.tls()
        except (ssl.SSLError, OSError) as error:
            message = f"{', '.join(given)} of the database's URL cannot be used: {error}"
            raise ConfigError(message, hint="check the files") from error


def _context(mode: str, authority: str | None = None) -> ssl.SSLContext:
    is_verified = mode != "required"
    context = ssl.create_default_context(cafile=authority) if is_verified else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify_identity"
    if not is_verified:
        context.verify_mode = ssl.CERT_NONE
    return context


# Loading the system's certificate authorities takes 30 ms; forked workers inherit the cached context.
_shared_context = lru_cache(maxsize=None)(_context)
