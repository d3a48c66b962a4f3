"""A tool server in plain Python that misbehaves as its first argument says. Prints its port."""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

MODE = sys.argv[1]
LOG: list[list[object]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if MODE == "mute":
            time.sleep(60)
        self.send(404, b"{}")  # as servers of older versions

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        LOG.append([request["trajectory_ids"][0][:4], request["actions"][0], request["finish"][0]])
        if request["finish"][0]:
            answer = {"observations": [""], "dones": [True], "valids": [True]}
        elif MODE == "dies":
            os._exit(3)
        elif MODE == "hangs":
            time.sleep(60)
        elif MODE == "floods":
            self.send_response(200)
            self.end_headers()
            for _ in range(64):
                self.wfile.write(b" " * (1 << 20))
            return
        elif MODE == "fails":
            return self.send(500, b'{"detail": "disk full"}')
        elif MODE == "babbles":
            return self.send(200, b"<html>")
        elif MODE == "ends":
            answer = {"observations": [{"obs": "bye"}], "dones": [True], "valids": [True]}
        elif MODE == "broken":
            answer = {"observations": [{"obs": "", "error": "no kernel"}], "dones": [True], "valids": [False]}
        elif request["actions"][0] == "<log></log>":
            answer = {"observations": [json.dumps(LOG[1:])], "dones": [0], "valids": [1]}
        elif "good" in request["actions"][0]:
            text = f"\n{request['actions'][0]} {json.dumps(request['extra_fields'][0])}\n"
            answer = {"observations": [text], "dones": [0], "valids": [1]}
        else:
            answer = {"observations": [""], "dones": [0], "valids": [0]}
        self.send(200, json.dumps(answer).encode())


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
