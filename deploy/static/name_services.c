// SPDX-License-Identifier: Apache-2.0
// Linked into the static programs: name services without modules.
//
// glibc loads the modules in /etc/nsswitch.conf (resolve, mdns, systemd, ...) also into static programs, but
// they work only with the glibc of the build: a program from Debian 12 ends with SIGFPE on Debian 13. The
// services in this table are built in.
#include <nss.h>
#include <stddef.h>

__attribute__((constructor)) static void use_built_in_name_services(void)
{
    static const char *const services[][2] = {
        {"hosts", "files dns"}, {"aliases", "files"},    {"ethers", "files"},   {"group", "files"},
        {"gshadow", "files"},   {"initgroups", "files"}, {"netgroup", "files"}, {"networks", "files"},
        {"passwd", "files"},    {"protocols", "files"},  {"publickey", "files"}, {"rpc", "files"},
        {"services", "files"},  {"shadow", "files"},
    };
    for (size_t i = 0; i < sizeof services / sizeof *services; i++)
        __nss_configure_lookup(services[i][0], services[i][1]);
}
