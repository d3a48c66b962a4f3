"""Answers as a Lean REPL does, for a logic of one rule: `close` proves a goal, `split` makes two of it. Not Lean."""

import json
import sys
import time

goals: dict[int, list[str]] = {}
texts: dict[int, str] = {}


def answer(request):
    if "tactic" in request:
        return apply(request["tactic"], goals.get(request["proofState"]))
    text = request["cmd"]
    number = len(texts)
    texts[number] = text
    if text.startswith("import"):
        if "Nowhere" in text:
            return {"messages": [{"severity": "error", "data": "unknown module prefix 'Nowhere'"}]}
        return {"env": number}
    if text.startswith("#print axioms"):
        used = "sneaky" if "cheat" in texts[request["env"]] else "propext"
        none = "close" in texts[request["env"]] and "classical" not in texts[request["env"]]
        data = "'t' does not depend on any axioms" if none else f"'t' depends on axioms: [{used}, Quot.sound]"
        return {"messages": [{"severity": "info", "data": data}], "env": number}
    if "unknown" in text:
        return {"messages": [{"severity": "error", "data": "unknown identifier"}], "env": number}
    if text.endswith("by sorry"):
        goals[len(goals)] = ["p : Prop\nh : p\n⊢ p"]
        sorries = [{"goal": "p : Prop\nh : p\n⊢ p", "proofState": len(goals) - 1}]
        return {"sorries": sorries, "messages": [{"severity": "warning", "data": "uses sorry"}], "env": number}
    open_goals = 1
    for line in text.split(":= by\n")[1].splitlines():
        open_goals += {"split": 1, "close": -1, "cheat": -1, "classical": -1}.get(line.strip(), 0)
    if open_goals:
        return {"messages": [{"severity": "error", "data": "unsolved goals"}], "env": number}
    return {"env": number}


def apply(tactic, state):
    if state is None:
        return {"message": "Unknown proof state."}
    if tactic == "die":
        sys.exit(1)
    if tactic == "sleep":
        time.sleep(60)
    if tactic == "eat":
        state = [bytearray(1 << 30) for _ in range(64)]
    if tactic == "flood":
        sys.stdout.write("x" * (1 << 20))
    if tactic == "rubbish":
        return "rubbish"
    left = {"close": state[1:], "cheat": state[1:], "classical": state[1:], "split": state[:1] + state}.get(tactic)
    if left is None:
        return {"message": f"Lean error:\nunknown tactic {tactic}"}
    goals[len(goals)] = left
    return {"proofState": len(goals) - 1, "goals": left}


request = ""
for line in sys.stdin:
    if line.strip():
        request += line
    elif request:
        print(json.dumps(answer(json.loads(request)), indent=1) + "\n", flush=True)
        request = ""
