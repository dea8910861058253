"""Query MySQL and MariaDB servers: address, connections, dialect, functions."""
