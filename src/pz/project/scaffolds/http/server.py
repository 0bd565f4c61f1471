"""Three small APIs in the shapes of well-known ones, for trying the http connector without a network.

    python server.py [port]          default 8765; ends with Ctrl-C

    /github    issues, 100 at most a page, the next page in a Link header, ``since`` filters by updated_at
    /graph     a delta feed: next links, at the end a delta link that gives what changed since; OAuth2 tokens
    /stripe    a list that is paged by the id of its last record, with has_more
    /hooks     takes rows: PUT /hooks/customers/<id>

Rebuilt from the public documentation of the three; the data are made up.
"""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, parse_qsl, urlsplit

ISSUES = [
    {
        "id": 5000 + n,
        "number": n,
        "title": f"Rocket part {n} is {'loose' if n % 3 else 'missing'}",
        "state": "open" if n % 4 else "closed",
        "user": {"login": ["ada", "grace", "linus"][n % 3], "id": n % 3},
        "labels": [{"name": "bug"}] if n % 2 else [],
        "comments": n % 7,
        "created_at": f"2024-01-{1 + n // 10:02d}T08:00:00Z",
        "updated_at": f"2024-02-{1 + n // 10:02d}T{n % 10:02d}:30:00Z",
    }
    for n in range(1, 251)
]
USERS = [{"id": f"u-{n:03d}", "displayName": f"User {n}", "mail": f"user{n}@example.com"} for n in range(1, 36)]
CHARGES = [
    {
        "id": f"ch_{n:04d}",
        "object": "charge",
        "amount": 100 * n,
        "currency": "eur",
        "created": 1_704_067_200 + 3600 * n,
        "customer": f"cus_{n % 5}",
        "status": "succeeded" if n % 6 else "failed",
    }
    for n in range(120, 0, -1)
]
TOKENS = {"issued": 0}
RECEIVED = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
        if path.startswith("/github/"):
            self.github(path, query)
        elif path == "/graph/v1.0/users/delta":
            self.graph(query)
        elif path == "/stripe/v1/charges":
            self.stripe(query)
        elif path == "/hooks/customers":
            self.answer(200, RECEIVED)
        else:
            self.answer(404, {"message": "Not Found"})

    def do_POST(self):
        form = parse_qs(self.body().decode())
        if self.path != "/graph/token" or form.get("grant_type") != ["client_credentials"]:
            return self.answer(404, {"error": "not_found"})
        if self.basic() != "demo-client:demo-secret":
            return self.answer(401, {"error": "invalid_client"})
        TOKENS["issued"] += 1
        token = f"graph-token-{TOKENS['issued']}"
        return self.answer(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": token})

    def do_PUT(self):
        content = json.loads(self.body())
        if not self.path.startswith("/hooks/customers/"):
            return self.answer(404, {"message": "Not Found"})
        RECEIVED[self.path.rpartition("/")[2]] = content
        return self.answer(200, content)

    def github(self, path, query):
        if self.headers.get("Authorization") != "Bearer demo-token":
            return self.answer(401, {"message": "Bad credentials"})
        if path != "/github/repos/acme/rocket/issues":
            return self.answer(404, {"message": "Not Found"})
        size, page = min(int(query.get("per_page", "30")), 100), int(query.get("page", "1"))
        found = [issue for issue in ISSUES if issue["updated_at"] >= query.get("since", "")]
        found.sort(key=lambda issue: issue["updated_at"], reverse=query.get("direction") != "asc")
        links = []
        if page * size < len(found):
            rest = "".join(f"&{name}={value}" for name, value in query.items() if name != "page")
            links = [
                f'<{self.base()}{path}?page={n}{rest}>; rel="{rel}"' for n, rel in ((page + 1, "next"), (9, "last"))
            ]
        headers = {"Link": ", ".join(links), "X-RateLimit-Remaining": "4999", "X-RateLimit-Reset": "1893456000"}
        return self.answer(200, found[(page - 1) * size : page * size], headers)

    def graph(self, query):
        if not self.headers.get("Authorization", "").startswith("Bearer graph-token-"):
            return self.answer(401, {"error": {"code": "InvalidAuthenticationToken"}})
        start = int(query.get("$skiptoken", query.get("$deltatoken", "0")))
        if start > len(USERS):
            return self.answer(410, {"error": {"code": "resyncRequired"}})
        end = min(start + 10, len(USERS))
        body = {"@odata.context": f"{self.base()}/graph/v1.0/$metadata#users", "value": USERS[start:end]}
        name, parameter = ("nextLink", "skiptoken") if end < len(USERS) else ("deltaLink", "deltatoken")
        body[f"@odata.{name}"] = f"{self.base()}/graph/v1.0/users/delta?${parameter}={end}"
        return self.answer(200, body)

    def stripe(self, query):
        if self.basic() != "sk_test_demo:":
            return self.answer(401, {"error": {"message": "Invalid API Key provided", "type": "invalid_request_error"}})
        size = int(query.get("limit", "10"))
        ids = [charge["id"] for charge in CHARGES]
        start = ids.index(query["starting_after"]) + 1 if "starting_after" in query else 0
        data = CHARGES[start : start + size]
        body = {"object": "list", "url": "/v1/charges", "has_more": start + size < len(CHARGES), "data": data}
        return self.answer(200, body)

    def base(self):
        return f"http://{self.headers['Host']}"

    def basic(self):
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        return base64.b64decode(value).decode() if kind == "Basic" else ""

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def answer(self, status, content, headers=None):
        body = json.dumps(content).encode()
        self.send_response(status)
        named = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(body)), **(headers or {})}
        for name, value in named.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8765), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
