/*
 * Polling of the variables of a process. Framed transport, binary protocol, frames <= 4 MiB by default. Any language
 * may serve or poll this. Fields are only ever added, never renumbered.
 */
namespace py bookkeeper
namespace java artimon.bookkeeper
namespace go bookkeeper

/* The type is not part of the identity: it may change once, from INTEGER to DOUBLE. */
enum VarType {
  INTEGER = 0,  // int64
  DOUBLE = 1,   // float64
  BOOLEAN = 2,
  STRING = 3    // UTF-8
}

/* COUNTER: only non-negative adds so far. GAUGE: was set, or had a negative add. The program may declare either. */
enum Kind {
  UNKNOWN = 0,
  COUNTER = 1,
  GAUGE = 2
}

/* Exactly one field is present, chosen by the variable's type. */
struct Value {
  1: optional i64 integer
  2: optional double dbl
  3: optional bool truth
  4: optional string str
}

struct Variable {
  1: string name
  2: map<string, string> labels  // labels given by the program, without `context` and `instance`; no empty values
  3: VarType type
  4: Kind kind
  5: Value value
  6: optional string help
  7: optional string unit
}

/* One pollable process. The poller adds `context` and `instance` as labels; uuid is never a label. */
struct Endpoint {
  1: binary uuid          // 16 bytes; if it differs from the znode's, another process took the port
  2: i64 birth_ms         // start time of this process's counts, ms since the epoch
  3: string context
  4: string instance
  5: i64 time_ms          // current time of the process's clock, ms since the epoch
  6: i32 version = 1      // version of this protocol
  7: optional i32 uid     // user of the process: only files of that user (or root) are its final snapshot
}

struct Rows {
  1: Endpoint endpoint
  2: list<Variable> variables
}

/* All lists and byte strings have one entry for each variable, in the same order. */
struct Schema {
  1: list<string> names
  2: list<map<string, string>> labels
  3: binary types                 // one byte each: VarType
  4: binary kinds                 // one byte each: Kind
  5: map<string, string> help     // by variable name
  6: map<string, string> units    // by variable name
}

/* Polling agent. Only one agent at a time polls a process; if two claim it, the process decides by this struct. */
struct Poller {
  1: string name          // name of the agent
  2: i64 patience_ms      // yields to another poller that polled within this time; 0: always takes over
  3: optional binary memo // stored by the process for the next poller; at most 192 KiB
  4: optional bool confirms // sends `kept_ms` once the last answer of an ending process is on its disk
  5: optional i64 kept_ms // Endpoint.time_ms of the newest answer on the poller's disk
}

struct Columns {
  1: Endpoint endpoint
  2: binary schema_id             // 16 bytes: digest of the schema and its order
  3: optional Schema schema       // absent if schema_id is the id that the poller sent
  // One cell of 8 bytes, little-endian, for each variable in schema order. INTEGER: int64; DOUBLE: the bits of the
  // float64; BOOLEAN: int64 0 or 1; STRING: int64 index into `strings`.
  4: binary values
  5: list<string> strings
  6: binary crc                   // CRC-32 (zlib) of `values`, 4 bytes, little-endian
  // Poller that has the turn. If it is not the caller, the caller must yield, and there are no values.
  7: optional string poller
  8: optional binary memo         // memo of the previous poller, in the first answer after a takeover
}

/* Final snapshot: file written by an ending process if no agent has polled its last values. docs/formats/final.md */
struct Final {
  1: Columns columns      // complete, as for a poller without a schema; `poller` and `memo` of the last poll
  2: string address       // IP address that the process advertised
  3: i64 polled_ms        // process's clock at the last poll by an agent; 0 without one
}

service Bookkeeper {
  Rows getVars()
  // Empty known_schema_id: no schema known. A call without `poller` only reads and does not take the turn.
  Columns getColumns(1: binary known_schema_id, 2: Poller poller)
}
