"""Query MySQL and MariaDB servers: address, opening, dialect, functions, execution."""
