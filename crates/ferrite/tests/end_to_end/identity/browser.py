# SPDX-License-Identifier: Apache-2.0
"""Signs in to a page like a browser: follows redirects, keeps cookies, fills in forms.

    browser.py URL USER CA-FILE [PAGE]

Fills in the forms of oidc-provider's development pages until a page has none. Prints the last page
as JSON: status, url, text and cookies; then that of PAGE, which is requested with the cookies.
"""

import http.cookiejar
import json
import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

url, user, ca_file = sys.argv[1:4]
# A cookie of one port is sent to the others, as in browsers.
cookies = http.cookiejar.CookieJar()
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPCookieProcessor(cookies),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
# As for a link on a page of another site.
opener.addheaders = [("Accept", "text/html"), ("Sec-Fetch-Site", "cross-site"),
                     ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]


def load(address, fields=None):
    data = urllib.parse.urlencode(fields).encode() if fields else None
    try:
        response = opener.open(address, data, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    return response.status, response.geturl(), response.read().decode()


def show(page):
    status, address, text = page
    names = {cookie.name: cookie.value for cookie in cookies}
    print(json.dumps({"status": status, "url": address, "text": text, "cookies": names}))


page = load(url)
for _ in range(8):
    status, address, text = page
    form = re.search(r"<form.*?</form>", text, re.DOTALL)
    if "/ui" in urllib.parse.urlsplit(address).path or form is None:
        break
    action = re.search(r'action="([^"]*)"', form[0])
    fields = {}
    for tag in re.findall(r"<input[^>]*>", form[0]):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name:
            fields[name[1]] = value[1] if value else ""
    fields.update({name: user for name in ("login", "password") if name in fields})
    fields.update({"confirm": "yes"} if "user_code" in fields else {})
    page = load(urllib.parse.urljoin(address, action[1] if action else address), fields)
show(page)
for address in sys.argv[4:]:
    # A script of the page.
    opener.addheaders = [("Accept", "application/json"), ("Sec-Fetch-Site", "same-origin"),
                         ("X-OpenStack-Ironic-API-Version", "latest")]
    show(load(address))
