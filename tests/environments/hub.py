"""A hub of one dataset on this machine, with as much of the Hugging Face hub's HTTP interface as its clients ask for.

python hub.py DIRECTORY prints its address and serves DIRECTORY as me/mine.
"""

import hashlib
import http.server
import json
import sys
import urllib.parse
from pathlib import Path

COMMIT = "c0ffee" + "0" * 34
BASE = "/api/datasets/me/mine"
ROOT = Path(sys.argv[1])
FILES = {str(path.relative_to(ROOT)): path.read_bytes() for path in sorted(ROOT.rglob("*")) if path.is_file()}


def listed(name):
    if name in FILES:
        return {"type": "file", "path": name, "size": len(FILES[name]), "oid": hashlib.sha1(FILES[name]).hexdigest()}
    return {"type": "directory", "path": name, "size": 0, "oid": "0" * 40}


def inside(place):
    begin = f"{place}/" if place else ""
    return sorted({begin + name[len(begin) :].split("/")[0] for name in FILES if name.startswith(begin)})


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        return

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if path == BASE or path.startswith(f"{BASE}/revision/"):
            siblings = [{"rfilename": name} for name in FILES]
            self.answer(200, json.dumps({"_id": "1", "id": "me/mine", "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"{BASE}/tree/"):
            place = path.removeprefix(f"{BASE}/tree/").partition("/")[2]
            self.answer(200, json.dumps([listed(name) for name in inside(place)]).encode())
        elif path.startswith("/datasets/me/mine/resolve/"):
            self.file(path.split("/", 6)[6])
        else:
            self.answer(404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def file(self, name):
        if name not in FILES:
            self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            return
        body, asked = FILES[name], self.headers.get("Range")
        headers = {"ETag": f'"{listed(name)["oid"]}"', "X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
        if asked is None:
            self.answer(200, body, **headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        end = min(int(last or len(body)), len(body) - 1)
        self.answer(206, body[int(first) : end + 1], Content_Range=f"bytes {first}-{end}/{len(body)}", **headers)


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
