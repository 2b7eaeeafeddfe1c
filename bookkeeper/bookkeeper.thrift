/*
 * How a process shows its variables to whoever polls it. Framed transport, binary protocol, frames <= 4 MiB by
 * default. Any language may serve or poll this. Fields are only ever added, never renumbered.
 */
namespace py bookkeeper
namespace java artimon.bookkeeper
namespace go bookkeeper

/* Type is not identity: it may change once, from INTEGER to DOUBLE. */
enum VarType {
  INTEGER = 0,  // int64
  DOUBLE = 1,   // float64
  BOOLEAN = 2,
  STRING = 3    // UTF-8
}

/* COUNTER: had only non-negative adds. GAUGE: was set, or had a negative add. Either may be told by the program. */
enum Kind {
  UNKNOWN = 0,
  COUNTER = 1,
  GAUGE = 2
}

/* Exactly one field is there, the one that the variable's type names. */
struct Value {
  1: optional i64 integer
  2: optional double dbl
  3: optional bool truth
  4: optional string str
}

struct Variable {
  1: string name
  2: map<string, string> labels  // the program's own, without `context` and `instance`; no empty values
  3: VarType type
  4: Kind kind
  5: Value value
  6: optional string help
  7: optional string unit
}

/* One process that can be polled. The poller adds `context` and `instance` as labels; uuid is never a label. */
struct Endpoint {
  1: binary uuid          // 16 bytes; another uuid than the znode's means another process took the port
  2: i64 birth_ms         // when this process's counts began, ms since the epoch
  3: string context
  4: string instance
  5: i64 time_ms          // the process's clock now, ms since the epoch
  6: i32 version = 1      // of this contract
  7: optional i32 uid     // user of the process: only files of that user (or root) are its final snapshot
}

struct Rows {
  1: Endpoint endpoint
  2: list<Variable> variables
}

/* All lists and strings of bytes have one entry for each variable, in one order. */
struct Schema {
  1: list<string> names
  2: list<map<string, string>> labels
  3: binary types                 // one byte each: VarType
  4: binary kinds                 // one byte each: Kind
  5: map<string, string> help     // by variable name
  6: map<string, string> units    // by variable name
}

/* Who polls. A process is polled by one agent at a time: this is for the moments at which two believe to be the one. */
struct Poller {
  1: string name          // of the agent
  2: i64 patience_ms      // gives way to another poller that asked within this time; 0: takes its place
  3: optional binary memo // kept by the process for the poller that comes next; at most 192 KiB
  4: optional bool confirms // will say `kept_ms` once the answer of a process that is ending is on its disk
  5: optional i64 kept_ms // Endpoint.time_ms of the newest answer that is on the poller's disk
}

struct Columns {
  1: Endpoint endpoint
  2: binary schema_id             // 16 bytes: a digest of the schema and its order
  3: optional Schema schema       // absent if schema_id is the id that the poller sent
  // One cell of 8 bytes, little-endian, for each variable in schema order. INTEGER: int64; DOUBLE: the bits of the
  // float64; BOOLEAN: int64 0 or 1; STRING: int64 index into `strings`.
  4: binary values
  5: list<string> strings
  6: binary crc                   // CRC-32 (zlib) of `values`, 4 bytes, little-endian
  // Who polls this process now. If that is not who asked, it had to give way: there are no values then.
  7: optional string poller
  8: optional binary memo         // what the poller before this one left, in the first answer after it
}

/* Final snapshot: the file that a process leaves when it ends and no agent has polled it. docs/formats/final.md */
struct Final {
  1: Columns columns      // whole, as for a poller without a schema; `poller` and `memo` of the last poll
  2: string address       // IP address that the process advertised
  3: i64 polled_ms        // the process's clock at the last poll of an agent, 0 without one
}

service Bookkeeper {
  Rows getVars()
  // known_schema_id empty: no schema known. Without `poller` the answer is for somebody who only looks.
  Columns getColumns(1: binary known_schema_id, 2: Poller poller)
}
