/**
 * Queries to Artimon, one call each: select variables by name and labels, or write a query, and get a matrix, series by
 * time buckets.
 *
 * Transport: framed. Protocol: binary, strict. Port 8781 by default; `artimon env` prints it as
 * ARTIMON_MATRIX=host:port. Strings are UTF-8. Times are milliseconds since 1970 in UTC. If the API has a login, call
 * `authenticate` first.
 *
 * A connection may be reused for many sequential calls. It is closed after 300 s without a call, so be ready to
 * reconnect. A request has at most 64 KiB, an answer at most 16,000,000 bytes, which clients of Apache Thrift accept
 * without configuration.
 */
namespace perl artimon
namespace py artimon_matrix
namespace java org.artimon.matrix
namespace cpp artimon
namespace go artimon
namespace rb Artimon

/** Type of a series; selects the list of its row that is set. */
enum Type {
  INTEGER = 0,
  DOUBLE = 1,
  BOOLEAN = 2,
  STRING = 3
}

/**
 * `n` consecutive buckets, oldest first. Bucket i covers the time
 * (start_ms + i * step_ms, start_ms + (i + 1) * step_ms] and is named by its end; the last one ends at end_ms.
 */
struct Grid {
  1: i64 start_ms,
  2: i64 end_ms,
  /** 0 for buckets of a calendar. */
  3: i64 step_ms,
  4: i32 n,
  /** Ends of the buckets of a calendar, which differ in length. */
  5: optional list<i64> ends_ms
}

/**
 * One series. Exactly one of the four lists of values is set, that of `type`. It has one entry per bucket, as `present`
 * has. If `present` is false, the value is missing, and its entry (0, false or "") has no meaning.
 */
struct Row {
  /** name{label="value",…}, labels sorted: the identity of the series as text. */
  1: string series,
  /** Empty if an operation dropped it. */
  2: string name,
  3: map<string, string> labels,
  4: Type type,
  5: list<bool> present,
  /** Full 64-bit range. */
  6: optional list<i64> integers,
  /** A NaN that is present is a stored value, not a missing one. */
  7: optional list<double> doubles,
  8: optional list<bool> booleans,
  9: optional list<string> strings
}

/** Answer to a query: rows sorted by name and labels, all on one grid. */
struct Answer {
  1: Grid grid,
  2: list<Row> rows,
  /** Caveats of the answer: shards that did not answer, series that were left out. */
  3: list<string> notes,
  /** True if memory held the whole range. */
  4: bool complete,
  /** True if a shard did not answer, so that series may be missing. */
  5: bool partial
}

/** Error instead of an answer. */
exception Refused {
  /** Text for users: the problem and the remedy. */
  1: string message,
  /** Position of the error in the query, in characters from 0; -1 if it has none. */
  2: i32 position,
  /** Length of the erroneous text in characters; 0 without a position. */
  3: i32 length,
  /**
   * For a program: "bad" invalid query, "large" a limit is exceeded, "busy" try again later, "late" timeout,
   * "unavailable" no shard answers, "unauthorized" authenticate first, "forbidden" the role does not allow it, "defect"
   * internal error, see the server's log.
   */
  4: string reason
}

/** The service. Its calls only read, so they may be repeated. */
service Matrix {
  /**
   * Authenticates the connection by a token of `artimon tokens create`. Needed once for each connection, unless the API
   * has no login, or the connection uses TLS with a certificate of a user.
   */
  void authenticate(1: string token) throws (1: Refused refused),

  /**
   * Evaluates `q`, a query such as fetch('http.requests').rate('5m').sum(by=['dc']), at the time `time_ms`; 0 means
   * now.
   */
  Answer query(1: string q, 2: i64 time_ms) throws (1: Refused refused),

  /**
   * Returns all variables of a name with these labels for the last `last_ms` milliseconds: the last value of each
   * bucket. The name is exact, or a prefix that ends with ".*". An empty label value selects series without the label.
   * Same as query("fetch('name{label=\"value\",…}').range('…ms')", 0).
   */
  Answer fetch(1: string name, 2: map<string, string> labels, 3: i64 last_ms) throws (1: Refused refused)
}
