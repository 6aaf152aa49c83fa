# SPDX-License-Identifier: Apache-2.0
"""Runs Keystone with SQLite and Fernet tokens.

    keystone_server.py FOLDER PORT TOKEN-LIFETIME

Creates the database, the keys and the user `admin` with the password `admin` in the folder, unless
they exist, and prints its address. Port 0 is a free one. Tokens are valid for the given seconds. It
does what `keystone-manage db_sync`, `fernet_setup` and `bootstrap` do, in one process, because each of
them takes seconds to start.
"""

import os
import pathlib
import sys
import unittest.mock
import warnings

warnings.simplefilter("ignore")

import waitress  # noqa: E402
import waitress.server  # noqa: E402
from keystone.cmd import bootstrap  # noqa: E402
from keystone.common import fernet_utils  # noqa: E402
from keystone.common.sql import upgrades  # noqa: E402
from keystone.server import wsgi  # noqa: E402

CONFIGURATION = """
[DEFAULT]
log_file = {folder}/keystone.log
[database]
connection = sqlite:///{folder}/keystone.db
[fernet_tokens]
key_repository = {folder}/fernet-keys
[fernet_receipts]
key_repository = {folder}/fernet-keys
[credential]
key_repository = {folder}/credential-keys
[identity]
# Hashing as usual would take most of the time of the tests.
password_hash_rounds = 4
[token]
expiration = {lifetime}
"""

folder = pathlib.Path(sys.argv[1]).absolute()
port, lifetime = int(sys.argv[2]), int(sys.argv[3])
is_new = not folder.exists()
configuration = folder / "keystone.conf"
if is_new:
    for name in ("fernet-keys", "credential-keys"):
        (folder / name).mkdir(parents=True)
        os.chmod(folder / name, 0o700)
    repository = str(folder / "fernet-keys")
    fernet_utils.FernetUtils(repository, 3, "fernet_tokens").initialize_key_repository()
configuration.write_text(CONFIGURATION.format(folder=folder, lifetime=lifetime))

# Keystone logs to the file; its arguments are those of this script otherwise.
sys.argv = sys.argv[:1]
os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(configuration)
application = wsgi.initialize_public_application()
server = waitress.server.create_server(application, host="127.0.0.1", port=port, threads=4)
url = "http://127.0.0.1:%s" % server.effective_port
if is_new:
    upgrades.offline_sync_database_to_version()
    # The application has loaded the drivers already.
    with unittest.mock.patch("keystone.server.backends.load_backends"):
        boot = bootstrap.Bootstrapper()
    boot.admin_username = boot.admin_password = "admin"
    boot.project_name = boot.admin_role_name = "admin"
    boot.service_name = "keystone"
    boot.region_id = "RegionOne"
    boot.public_url = url + "/v3"
    boot.immutable_roles = True
    boot.bootstrap()
print("listening on " + url, flush=True)
server.run()
