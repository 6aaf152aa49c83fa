# The contract of the official PostgreSQL image: POSTGRES_PASSWORD, POSTGRES_USER, POSTGRES_DB at the
# first start, data in PGDATA, further options as arguments. PostgreSQL does not run as root.
set -eu
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH
data=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
mkdir -p "$data" /run/postgresql
if [ "$(id -u)" = 0 ]; then
    chown -R 999:999 "$data" /run/postgresql
    as_postgres="setpriv --reuid 999 --regid 999 --clear-groups --"
else
    as_postgres=
fi
chmod 700 "$data"
if [ ! -s "$data/PG_VERSION" ]; then
    printf '%s' "$POSTGRES_PASSWORD" >/run/postgresql/password
    chmod 644 /run/postgresql/password
    $as_postgres initdb --username="$user" --pwfile=/run/postgresql/password --auth=scram-sha-256 \
        --encoding=UTF8 --locale=C --no-sync --pgdata="$data" >/dev/null
    rm /run/postgresql/password
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
        echo "CREATE DATABASE \"$POSTGRES_DB\";" | $as_postgres postgres --single -D "$data" postgres >/dev/null
    fi
fi
exec $as_postgres postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/run/postgresql \
    -c fsync=off "$@"
