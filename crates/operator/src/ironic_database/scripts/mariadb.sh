# SPDX-License-Identifier: Apache-2.0
# Starts MariaDB. Uses only programs of the server, so any image with them works.
#
# DATABASE_FOLDER  folder of the data, on a volume; created at the first start
# SETUP_FOLDER     folder with setup.sql, which is executed at each start
set -eu
temporary=${TMPDIR:-/tmp}

if [ ! -d "$DATABASE_FOLDER" ]; then
    # A first start that was interrupted begins again.
    rm -rf "$DATABASE_FOLDER.new"
    mariadb-install-db --no-defaults --datadir="$DATABASE_FOLDER.new" --skip-name-resolve \
        --auth-root-authentication-method=socket --skip-test-db
    mv "$DATABASE_FOLDER.new" "$DATABASE_FOLDER"
fi

exec mariadbd --no-defaults --datadir="$DATABASE_FOLDER" --init-file="$SETUP_FOLDER/setup.sql" \
    --socket="$temporary/mariadb.sock" --pid-file="$temporary/mariadb.pid" --tmpdir="$temporary" \
    --skip-name-resolve --character-set-server=utf8mb4 "$@"
