#!/usr/bin/env python3
"""Writes the seeds of the fuzzer of nsys exports into tests/fuzz/corpus/read_nsys.

Small pages keep them to a few KiB. The columns are those that Ridge reads, and a few that it does not.
"""

import pathlib
import sqlite3

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus" / "read_nsys"
PID = 77 << 24
TID = PID | 78

NEW = f"""
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'add'), (3, 'cudaMemcpyAsync_v3020');
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'GPU', 132);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'HTOD', 'Host-to-Device');
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, {TID}, 1, 1), (30, 40, {TID}, 2, 3);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
  shortName INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
  blockX INTEGER, blockY INTEGER, blockZ INTEGER, graphNodeId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
  (25, 90, 0, 7, 1, {PID}, 2, 2, 32, 4, 1, 1, 128, 1, 1, NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,
  srcKind INTEGER, dstKind INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (45, 60, 0, 13, 2, {PID}, 4096, 1, 0, 2);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (deviceId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, eventId INTEGER, eventSyncId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 13, 3, {PID}, 4, 9);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER,
  streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER,
  eventSyncId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (61, 62, 0, 7, 5, {PID}, 2, 4, 9);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
  globalTid INTEGER, textId INTEGER);
INSERT INTO NVTX_EVENTS VALUES (5, 95, 59, 'step', {TID}, NULL), (6, 9, 59, 'aten::mm, seq', {TID}, 1);
CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT);
INSERT INTO DIAGNOSTIC_EVENT VALUES (2, '12 events were dropped');
"""

OLD = f"""
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, shortName TEXT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 5, 'add'), (7, 3, NULL);
CREATE TABLE OSRT_API (start INT, end INT, globalTid INT, nameId TEXT);
INSERT INTO OSRT_API VALUES (2, 4, {TID}, 'poll');
"""

HARMFUL = """
CREATE TABLE OSRT_API (start INT, end INT, globalTid INT AS (abs(start)), nameId TEXT);
INSERT INTO OSRT_API (start, end, nameId) VALUES (1, 2, 'read'), ('x', 9223372036854775807, 3);
CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
  SELECT x AS start, x AS end FROM n;
CREATE INDEX tree ON OSRT_API (nameId);
CREATE TRIGGER harm AFTER INSERT ON OSRT_API BEGIN DELETE FROM OSRT_API; END;
"""


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in (("new", NEW), ("old", OLD), ("harmful", HARMFUL)):
        path = FOLDER / f"{name}.sqlite"
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as database:
            database.executescript("PRAGMA page_size = 512;" + text)
        database.close()


if __name__ == "__main__":
    main()
