// The tables of an export of nsys.
#pragma once

namespace ridge::test {

/// The columns and enumerations of 2025, those left out that nothing reads.
inline constexpr const char* kNsysTables = R"(
  CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
  CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
  CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
  CREATE TABLE ENUM_CUPTI_SYNC_TYPE (id INTEGER, name TEXT, label TEXT);
  CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
  CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, totalMemory INTEGER,
      computeMajor INTEGER, computeMinor INTEGER, smCount INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER,
      globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER,
      callchainId INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
      contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER,
      globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
      registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,
      blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
      graphNodeId INTEGER, graphId INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
      contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
      bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER,
      contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
      value INTEGER, bytes INTEGER, memKind INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER,
      contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
      syncType INTEGER, eventId INTEGER, eventSyncId INTEGER);
  CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INTEGER, deviceId INTEGER,
      contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
      eventId INTEGER, eventSyncId INTEGER);
  CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER,
      text TEXT, globalTid INTEGER, textId INTEGER);
  CREATE TABLE OSRT_API (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
      nameId INTEGER);
  CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER);
  CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, source INTEGER, severity INTEGER, text TEXT);
  INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'),
      (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'),
      (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device'),
      (9, 'CUDA_MEMCPY_KIND_HTOH', 'Host-to-Host');
  INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
      (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'),
      (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'),
      (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'),
      (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed');
  INSERT INTO ENUM_CUPTI_SYNC_TYPE VALUES (1, 'EVENT_SYNCHRONIZE', 'Event sync'),
      (2, 'STREAM_WAIT_EVENT', 'Stream wait event'), (3, 'STREAM_SYNCHRONIZE', 'Stream sync'),
      (4, 'CONTEXT_SYNCHRONIZE', 'Context sync');
)";

}  // namespace ridge::test
