"""Run statements on a MySQL or MariaDB server, in read-only sessions under the server's time and memory limits."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar

import pymysql
from pymysql.constants import FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor, SSCursor

from sql_agent.database.answers import Row, fit
from sql_agent.database.counterfactual import Change, changed_statement
from sql_agent.database.deadline import Deadline, OutOfTime
from sql_agent.database.dialect import Dialect
from sql_agent.database.failures import LOST, code_of, from_server, message_of
from sql_agent.database.guard import Result, check
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.dialect import MYSQL
from sql_agent.database.schema import ForeignKey, RequiredSchema, Schema, fold, quoted, readable_tables
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryLimits

# Share of the deadline after which the server ends a statement. If the worker were killed first, the answer would name
# no cause, and the statement would go on running.
_SERVER_SHARE = 0.9
_PAUSE_S = 0.05  # pause between two attempts to connect to a server with too many connections
_TOO_MANY = frozenset({1040, 1203, 1226})  # error numbers for too many connections
_CONNECT_S = 10
_ANSWERS_S = 2.0  # time in which even a busy server accepts a new connection
# || concatenates texts, as in SQLite, so that a statement runs on both engines.
_SESSION = {"sql_mode": "'PIPES_AS_CONCAT'", "group_concat_max_len": "65536"}
_MARIADB = {"max_session_mem_used": "134217728", "tmp_disk_table_size": "134217728"}
_LEAST = {"MariaDB": (10, 3), "MySQL": (8, 0)}  # the first versions with WITH and time limits

_INTEGERS = ("TINY", "SHORT", "LONG", "LONGLONG", "INT24", "YEAR")
_FAILURES = (pymysql.Error, OSError, MemoryError)


def _number(text: str) -> int | float:
    """Return a DECIMAL as SQLite does: as an int if it has no decimal point, else as a float."""
    value = Decimal(text)
    return int(value) if value.as_tuple().exponent == 0 else float(value)


# All other types, such as dates and times, stay texts.
_DECODERS: dict[int, Any] = {
    **dict.fromkeys((getattr(FIELD_TYPE, name) for name in _INTEGERS), int),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
    **dict.fromkeys((FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL), _number),
}


def open_server(address: ServerAddress, required: RequiredSchema) -> tuple[MysqlServer, Schema]:
    """Check the database at `address`, and return its connection data and its schema.

    Raises DatabaseFileError if the database cannot be queried or lacks a required table, column or row.
    """
    try:
        with closing(connect_to(address)) as connection, connection.cursor() as cursor:
            server = _server(address, cursor)
            return server, _read_schema(cursor, address, required)
    except _FAILURES as error:
        hint = "check the URL, the user's password and rights, and that the server runs"
        raise DatabaseFileError(f"{address} cannot be queried: {message_of(error)}", hint=hint) from error


@dataclass(frozen=True)
class MysqlServer:
    """Connects to the database at `source`, on MariaDB or MySQL."""

    source: ServerAddress
    is_mariadb: bool
    is_encrypted: bool
    dialect: ClassVar[Dialect] = MYSQL

    @property
    def address(self) -> ServerAddress:
        """Return the address to connect to, where "required" or "disabled" replaces the `ssl_mode` "preferred"."""
        if self.source.ssl_mode != "preferred":
            return self.source
        return replace(self.source, ssl_mode="required" if self.is_encrypted else "disabled")

    def connect(self, schema: Schema, limits: QueryLimits) -> MysqlConnection:
        """Open a session that runs statements on the tables of `schema`. Raises QueryError."""
        return MysqlConnection(self, schema, limits)

    def silence(self) -> str | None:
        """Return why the server does not respond, or None if the server responds."""
        try:
            connect_to(self.address, within_s=_ANSWERS_S).close()
        except _FAILURES as error:
            return message_of(error)
        return None

    def session(self, limits: QueryLimits) -> dict[str, str]:
        """Return the session variables that make the server enforce `limits`."""
        seconds = limits.deadline_s * _SERVER_SHARE
        waits = {"lock_wait_timeout": str(max(1, int(seconds))), "sql_select_limit": str(limits.max_rows + 1)}
        if self.is_mariadb:
            return {**_SESSION, **waits, **_MARIADB, "max_statement_time": f"{seconds:.3f}"}
        return {**_SESSION, **waits, "max_execution_time": str(max(1, int(seconds * 1000)))}

    def limited(self, sql: str, seconds: float) -> str:
        """Return the SELECT `sql` with a time limit of `seconds`, which the server enforces."""
        if self.is_mariadb:
            return f"SET STATEMENT max_statement_time={seconds:.3f} FOR {sql}"
        return sql.replace("SELECT", f"SELECT /*+ MAX_EXECUTION_TIME({int(seconds * 1000)}) */", 1)


class MysqlConnection:
    """A read-only session, which is opened again if the server has closed the session.

    `run` and `read` do what those of SqliteConnection do. Even a statement that the guard misreads cannot write.
    """

    def __init__(self, server: MysqlServer, schema: Schema, limits: QueryLimits) -> None:
        self._server = server
        self._schema = schema
        self._limits = limits
        self._raw = self._open()

    def run(self, sql: str, changes: Sequence[Change], deadline: Deadline) -> Result:
        try:
            with deadline.enforced():
                checked = check(sql, self._schema, MYSQL)
                text = MYSQL.runnable(checked, self._schema)
                if changes:
                    text = changed_statement(text, self._schema, changes, MYSQL)
        except OutOfTime:
            message = f"interrupted after {self._limits.deadline_s:g} seconds"
            raise QueryError("timeout", message, hint="write a simpler statement") from None
        try:
            try:
                fitted = self._fitted(text)
            except pymysql.Error as error:
                if code_of(error) not in LOST and not isinstance(error, pymysql.err.InterfaceError):
                    raise
                self.close()
                self._raw = self._open()
                fitted = self._fitted(text)
        except _FAILURES as error:
            raise from_server(error, text, self._schema) from error
        return Result(*fitted, checked.tree, checked.from_tables)

    def read(self, sql: str, seconds: float | None = None) -> list[tuple[object, ...]]:
        try:
            with self._raw.cursor() as cursor:
                cursor.execute(sql if seconds is None else self._server.limited(sql, seconds))
                return list(cursor.fetchall())
        except _FAILURES as error:
            raise from_server(error, sql, self._schema) from error

    def close(self) -> None:
        if self._raw.open:
            self._raw.close()

    def _fitted(self, sql: str) -> tuple[tuple[str, ...], tuple[Row, ...], bool]:
        cursor = self._raw.cursor(SSCursor)
        cursor.execute(sql)
        self._check_origin(cursor)
        result = fit((item[0] for item in cursor.description or ()), iter(cursor.fetchone, None), self._limits)
        for _ in range(self._limits.max_rows + 2):  # a small rest is read to its end
            if cursor.fetchone() is None:
                cursor.close()
                return result
        self._leave(cursor)
        return result

    def _check_origin(self, cursor: SSCursor) -> None:
        """Raise QueryError if the guard has missed that a column of the result is from another database."""
        for column in cursor._result.fields:
            database = column.db.decode("utf-8", "replace")
            if database not in {"", self._schema.database}:
                self._leave(cursor)
                raise QueryError("forbidden_table", f"{database} may not be read", hint=self._schema.only_these)

    def _leave(self, cursor: SSCursor) -> None:
        """Open a new connection in place of one with unread rows, because the protocol cannot skip rows."""
        cursor._result.unbuffered_active = False
        self.close()
        self._raw = self._open()

    def _open(self) -> pymysql.Connection[Cursor]:
        """Connect, with retries while the server has too many connections. Raises QueryError."""
        due = time.monotonic() + self._limits.deadline_s * _SERVER_SHARE
        while True:
            try:
                connection = connect_to(self._server.address)
                break
            except _FAILURES as error:
                if code_of(error) not in _TOO_MANY or time.monotonic() > due:
                    raise from_server(error, "", self._schema) from error
                time.sleep(_PAUSE_S)
        variables = ", ".join(f"{name}={value}" for name, value in self._server.session(self._limits).items())
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION {variables}")
                cursor.execute("SET SESSION TRANSACTION READ ONLY")
        except _FAILURES as error:
            connection.close()
            raise from_server(error, "", self._schema) from error
        return connection


def connect_to(address: ServerAddress, *, within_s: float | None = None) -> pymysql.Connection[Cursor]:
    """Connect as the user of `address`. Raises pymysql.Error, also if no answer comes within `within_s` seconds."""
    return pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password.encode(),  # pymysql would encode a str as latin1
        database=address.database or None,
        unix_socket=address.unix_socket,
        charset="utf8mb4",
        conv={**encoders, **_DECODERS},
        autocommit=True,
        connect_timeout=within_s or _CONNECT_S,
        read_timeout=within_s,
        ssl=address.tls(),
        ssl_disabled=address.ssl_mode == "disabled",
        local_infile=False,
        program_name="sql-agent",
    )


def _server(address: ServerAddress, cursor: Cursor) -> MysqlServer:
    cursor.execute("SELECT VERSION()")
    ((version,),) = cursor.fetchall()
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    major, minor, *_ = (int(part) for part in version.split("-")[0].split("."))
    if (major, minor) < _LEAST[kind]:
        least = ".".join(map(str, _LEAST[kind]))
        raise DatabaseFileError(f"the server of {address} is too old: {kind} {version}", hint=f"use {least} or newer")
    cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    ((_, cipher),) = cursor.fetchall()
    return MysqlServer(address, kind == "MariaDB", bool(cipher))


def _read_schema(cursor: Cursor, address: ServerAddress, required: RequiredSchema) -> Schema:
    cursor.execute("SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE()")
    kinds: dict[str, str] = dict(cursor.fetchall())
    columns: dict[str, tuple[str, ...]] = defaultdict(tuple)
    primary: dict[str, list[tuple[str, str]]] = defaultdict(list)  # name and type of each column of the primary key
    cursor.execute(
        "SELECT table_name, column_name, data_type, column_key FROM information_schema.columns "
        "WHERE table_schema = DATABASE() ORDER BY ordinal_position"
    )
    for table, column, kind, key in cursor.fetchall():
        columns[table] += (column,)
        primary[table] += [(column, str(kind))] if key == "PRI" else []

    def has_rows(table: str) -> bool:
        return bool(cursor.execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1"))

    found = sorted(name for name, kind in kinds.items() if kind == "BASE TABLE")
    tables = readable_tables(address, required, found, lambda table: columns[table], has_rows)
    keys = {table: key[0][0] for table, key in primary.items() if len(key) == 1 and "int" in key[0][1]}
    row_keys = [(table, keys.get(table)) for table in tables if "id" not in map(fold, columns[table])]
    cursor.execute(
        "SELECT table_name, MAX(column_name), MAX(referenced_table_name), MAX(referenced_column_name) "
        "FROM information_schema.key_column_usage WHERE table_schema = DATABASE() "
        "AND referenced_table_schema = DATABASE() GROUP BY table_name, constraint_name HAVING COUNT(*) = 1"
    )
    foreign = [(str(table), ForeignKey(str(one), str(other), str(to))) for table, one, other, to in cursor.fetchall()]
    return Schema(
        tuple(tables.items()),
        frozenset(kinds.keys() - tables.keys()),
        address.database,
        row_keys=tuple(row_keys),
        foreign_keys=tuple(foreign),
    )
