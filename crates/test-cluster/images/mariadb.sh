# The contract of the official MariaDB image: MARIADB_ROOT_PASSWORD, MARIADB_DATABASE, MARIADB_USER,
# MARIADB_PASSWORD at the first start, data in /var/lib/mysql, further options as arguments.
set -eu
data=/var/lib/mysql
mkdir -p "$data" /run/mysqld
[ "$(id -u)" != 0 ] || set -- --user=root "$@"
if [ ! -d "$data/mysql" ]; then
    mariadb-install-db --no-defaults --skip-test-db --auth-root-authentication-method=normal \
        --datadir="$data" >/dev/null
    {
        echo "ALTER USER root@localhost IDENTIFIED BY '${MARIADB_ROOT_PASSWORD:-}';"
        [ -z "${MARIADB_DATABASE:-}" ] || echo "CREATE DATABASE \`$MARIADB_DATABASE\`;"
        if [ -n "${MARIADB_USER:-}" ]; then
            echo "CREATE USER \`$MARIADB_USER\`@'%' IDENTIFIED BY '$MARIADB_PASSWORD';"
            echo "GRANT ALL ON \`${MARIADB_DATABASE:-%}\`.* TO \`$MARIADB_USER\`@'%';"
        fi
    } >"$data/first-start.sql"
    set -- --init-file="$data/first-start.sql" "$@"
fi
exec mariadbd --no-defaults --datadir="$data" --bind-address=0.0.0.0 --port=3306 \
    --socket=/run/mysqld/mysqld.sock --skip-name-resolve --innodb-flush-log-at-trx-commit=0 \
    --innodb-buffer-pool-size=64M "$@"
