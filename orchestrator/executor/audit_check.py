"""Check a file of `orchestrator audit export`: python audit_check.py FILE [KEYFILE]. Needs only Python."""

import hashlib
import hmac
import json
import sys
from collections.abc import Iterable
from typing import Any


class WrongLine(ValueError):
    """A line is not the one that was exported."""


def code(key: bytes, text: bytes, **about: object) -> str:
    more = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() if about else b""
    return hmac.new(key, text + more, "sha256").hexdigest()


def check(lines: Iterable[bytes], key: bytes | None = None) -> dict[str, Any]:
    """Return what a file has; `WrongLine` names its first wrong line. Without a key, no seal is checked.

    `stopped` has the runs of which the file has not all records, and why. Each run in `runs` has the number of its
    records in the file, the digest of them, and the digests of proofs that earlier runs with its id were deleted.
    """
    rest, total, chain, kind, line, place, run, seq, head = iter(lines), b"", b"", "", 0, "", "", 0, 0
    runs, stopped, deleted, records, sealed = dict[str, Any](), dict[str, str](), list[dict[str, Any]](), 0, 0
    for line, text in enumerate(rest, 1):
        try:
            body, found, fault = text.rpartition(b',"sum":"')[0], json.loads(text), ""
            total, before, number, mac = hashlib.sha256(total + body).digest(), chain, found["n"], found["mac"]
            if number != line:
                moved = any(one.startswith(b'{"n":%d,' % line) for one in rest)
                fault = f"line {number!r} is here, line {line} was {'moved' if moved else 'removed'}"
            elif line == 1 and found["version"] != 1:
                fault = f"the file is of version {found['version']!r}, and this program checks version 1"
            elif text != body + f',"sum":"{total.hex()}","mac":"{mac}"}}\n'.encode():
                fault = "it was changed"
            elif key and mac != code(key, b"audit " + total):
                fault = "its seal was forged, or made with another key" if mac else "it has no seal: see --no-seals"
            elif "seq" in found:
                seq, chain, record, seal = seq + 1, bytes.fromhex(found["chain"]), found.get("record"), found["seal"]
                if found["seq"] != seq or (record and hashlib.sha256(before + record.encode()).digest() != chain):
                    fault = f"record {found['seq']!r} does not follow the records before it"
                elif key and seal and seal != code(key, b"record " + chain)[:32]:
                    fault = f"the seal of record {seq} of run {run!r} is not valid"
                runs[run], records, sealed = (seq, chain.hex(), runs[run][2]), records + 1, sealed + bool(seal)
            elif found["type"] == "stopped":
                stopped[run], head = found["why"], seq
            elif seq != head:
                fault = f"{head - seq} records of run {run!r} are missing before it"
            elif found["type"] == "run":
                run, seq, head, chain = found["run_id"], 0, found["head"], found["start"].encode()
                runs[run] = (0, found["start"], found.get("earlier", []))
                if key and found["start"] != code(key, b"journal ", run=run, store=place):
                    fault = f"run {run!r} has the seals of another run or store"
            elif found["type"] == "deleted":
                deleted.append(proof := found["proof"])
                seal, signed = proof["seal"], {name: proof[name] for name in proof if name != "seal"}
                if key and seal and seal != code(key, b"message ", run=proof["run_id"], store=place, body=signed):
                    fault = f"the seal of the deletion of run {proof['run_id']!r} is not valid"
            fault = "it was added after the last line" if kind == "end" else fault
            kind, place = found["type"], found.get("place", place)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            fault = "it is no line of an audit: it was changed, or cut off"
        if fault:
            raise WrongLine(f"line {line}: {fault}")
    if kind != "end":
        raise WrongLine(f"line {line + 1}: the last line is missing: the file was cut off")
    counts = {"records": records, "sealed": sealed, "sealed_deletions": sum(bool(one["seal"]) for one in deleted)}
    return {"place": place, "runs": runs, "stopped": stopped, "deleted": deleted, **counts, "sum": total.hex()}


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file, open(sys.argv[-1], "rb") as keyfile:
        print(check(file, keyfile.read() if sys.argv[2:] else None))
