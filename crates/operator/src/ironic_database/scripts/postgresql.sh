# SPDX-License-Identifier: Apache-2.0
# Starts PostgreSQL. Uses only programs of the server, so any image with them works.
#
# DATABASE_FOLDER  folder of the data, on a volume; created at the first start
# SETUP_FOLDER     folder with create.sql for the first start, setup.sql for each start, pg_hba.conf
set -eu

if [ ! -d "$DATABASE_FOLDER" ]; then
    # A first start that was interrupted begins again.
    rm -rf "$DATABASE_FOLDER.new"
    initdb --pgdata="$DATABASE_FOLDER.new" --username=postgres --encoding=UTF8 --locale=C \
        --auth-local=reject --auth-host=scram-sha-256
    postgres --single -D "$DATABASE_FOLDER.new" postgres < "$SETUP_FOLDER/create.sql"
    mv "$DATABASE_FOLDER.new" "$DATABASE_FOLDER"
fi

postgres --single -D "$DATABASE_FOLDER" ironic < "$SETUP_FOLDER/setup.sql"

exec postgres -D "$DATABASE_FOLDER" -c hba_file="$SETUP_FOLDER/pg_hba.conf" \
    -c listen_addresses='*' -c unix_socket_directories="${TMPDIR:-/tmp}" "$@"
