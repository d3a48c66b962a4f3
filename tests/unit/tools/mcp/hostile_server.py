"""A server in plain Python that misbehaves as its first argument says. It starts in a twentieth of a second."""

import json
import os
import subprocess
import sys
import time

MODE = sys.argv[1]
TOOLS = [
    {
        "name": "echo",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {"name": "pid", "description": "Its process.", "inputSchema": {"type": "object", "properties": {}}},
]


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, text, **fields):
    send({"id": request["id"], "result": {"content": [{"type": "text", "text": text}], **fields}})


def handle(request):
    method = request.get("method")
    if method == "initialize":
        if MODE == "mute":
            time.sleep(60)
        version = request["params"]["protocolVersion"]
        info = {"name": "hostile", "version": "1"}
        send(
            {
                "id": request["id"],
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
            }
        )
    elif method == "tools/list":
        if MODE == "knows_no_tools":
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
            return
        if MODE in ("schema_missing", "schema_wrong"):  # results are not as the tool's output schema says
            promised = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
            send({"id": request["id"], "result": {"tools": [{**TOOLS[0], "outputSchema": promised}]}})
            return
        if MODE == "untyped":
            send({"id": request["id"], "result": {"tools": [*TOOLS, {"name": "loose", "inputSchema": {}}]}})
            return
        if MODE == "one_cursor":  # it never says that the list ends
            send({"id": request["id"], "result": {"tools": TOOLS, "nextCursor": ""}})
            return
        pages = [TOOLS] if MODE != "pages" else [TOOLS[:1], TOOLS[1:]]
        page = int(request.get("params", {}).get("cursor") or 0)
        more = {"nextCursor": str(page + 1)} if page + 1 < len(pages) else {}
        send({"id": request["id"], "result": {"tools": pages[page], **more}})
    elif method == "tools/call":
        call(request, request["params"])


def call(request, params):  # noqa: C901 - one case per hostile answer
    if params["name"] == "pid":
        answer(request, str(os.getpid()))
    elif MODE == "schema_wrong":
        answer(request, "n is three", structuredContent={"n": "three"})
    elif MODE == "dies":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    elif MODE == "hangs":
        time.sleep(60)
    elif MODE == "floods":
        answer(request, "x" * 10_000_000)
    elif MODE == "endless_line":
        while True:
            sys.stdout.write("x" * 65536)
    elif MODE == "endless_garbage":
        while True:
            print("listening")
    elif MODE == "endless_stderr":
        answer(request, "fine")
        while True:
            sys.stderr.write("noise\n")
    elif MODE == "closes":
        os.close(1)
        time.sleep(60)
    elif MODE == "wrong_shape":
        send({"id": request["id"], "result": {"content": 7}})
    elif MODE == "protocol_error":
        send({"id": request["id"], "error": {"code": -32603, "message": "disk full"}})
    elif MODE == "refuses":
        send({"id": request["id"], "error": {"code": -32602, "message": "text is too rude"}})
    elif MODE == "is_error":
        answer(request, "no such file", isError=True)
    elif MODE == "paints":
        image = {"type": "image", "mimeType": "image/png", "data": params["arguments"]["text"]}
        send({"id": request["id"], "result": {"content": [{"type": "text", "text": "see"}, image]}})
    elif MODE == "silent_error":
        send({"id": request["id"], "result": {"content": [], "isError": True}})
    elif MODE == "leaves_a_child":  # which keeps the output open
        subprocess.Popen(["sleep", "60"])
        os._exit(3)
    elif MODE == "not_a_number":
        send({"id": request["id"], "result": {"content": [], "structuredContent": {"mean": float("nan")}}})
    elif MODE == "environment":
        answer(request, " ".join(sorted(os.environ)) + " " + os.environ.get("SECRET", "") + " " + os.getcwd())
    else:
        answer(request, params["arguments"]["text"])


if MODE == "chatty":
    print("starting up ...", flush=True)
for line in sys.stdin:
    handle(json.loads(line))
if MODE == "stays":
    time.sleep(60)
